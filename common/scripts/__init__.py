"""One Lua file a script, its contract on top; `common.claims` calls them."""
