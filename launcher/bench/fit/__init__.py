"""The fit of the chips' costs to published figures: what is fitted, over which rows, how, and judged on rows unseen."""
