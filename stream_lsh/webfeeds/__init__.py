"""Web feeds (RSS, Atom) as an input: fetched politely, their new entries appended to a log of JSON lines."""
