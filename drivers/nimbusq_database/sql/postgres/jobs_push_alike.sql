-- Stores jobs that are alike; one whose id is known is left out.
{part alike}
on conflict do nothing;
