//! A real tree, real users, the real kernel. Takes root; skips with one line otherwise.

#[cfg(test)]
mod change;
#[cfg(test)]
mod common;
#[cfg(test)]
mod data;
#[cfg(test)]
mod handles;
#[cfg(test)]
mod judged;
#[cfg(test)]
mod listing;
#[cfg(test)]
mod rich;
#[cfg(test)]
mod space;
#[cfg(test)]
mod watch;
