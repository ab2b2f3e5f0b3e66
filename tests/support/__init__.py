"""What tests share. tests/README.md is the tour."""
