"""Scalar models of the rules, an item at a time: what the product's operators are compared with. Nothing ships."""
