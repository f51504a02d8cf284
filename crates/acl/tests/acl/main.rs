//! ACLs against models that were written from the rules alone, exhaustively where that is possible.

mod bytes;
mod heirs;
mod lists;
mod posix;
mod rich;
mod view;
mod world;
