"""Building blocks that methods share, one topic each; none of them knows a method."""
