-- Stores jobs that are alike, or fails: to be ready for an id that is known costs a quarter of the insert.
{part alike};
