"""What roles share: membership of a consumer group, and outputs committed together with positions."""
