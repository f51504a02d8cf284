//! The server over real sockets on loopback, with a client that knows frames and nothing else.
//!
//! Exports act for callers, which takes root: elsewhere every test says that it is skipped.

#[cfg(test)]
mod access;
#[cfg(test)]
mod appends;
#[cfg(test)]
mod behind;
#[cfg(test)]
mod bounds;
#[cfg(test)]
mod client;
#[cfg(test)]
mod files;
#[cfg(test)]
mod greedy;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod leases;
#[cfg(test)]
mod objects;
#[cfg(test)]
mod only_appends;
#[cfg(test)]
mod parallel;
#[cfg(test)]
mod sessions;
#[cfg(test)]
mod steady;
#[cfg(test)]
mod whose;
#[cfg(test)]
mod world;
