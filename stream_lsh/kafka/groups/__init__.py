"""The role group: memberships folded into groups, and what rules say of them."""
