"""Where calls are made: in the pool of this program, or by agents on the nodes of a Ray cluster."""
