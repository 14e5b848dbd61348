"""The bench's section "views": what a view moves and costs, beside sending everything."""
