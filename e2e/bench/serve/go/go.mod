module openflux/bench-serve

go 1.24
