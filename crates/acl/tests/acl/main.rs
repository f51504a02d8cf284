//! ACLs against models that were written from the rules alone, exhaustively where that is possible.

mod posix;
mod world;
