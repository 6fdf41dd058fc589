"""One small file per peer: how it is sent to and how it works, behind `benchmarks.peer.Peer`."""
