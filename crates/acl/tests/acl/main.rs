//! ACLs against models that were written from the rules alone, exhaustively where that is possible.

mod below;
mod bytes;
mod heirs;
mod lists;
mod policy;
mod posix;
mod rich;
mod view;
mod world;
