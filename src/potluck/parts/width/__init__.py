"""What the width methods share: the plan between two levels, scaled and nested networks, norms of each size's own."""
