//! Images as their users have them: on real file systems, behind real web servers, beside casync.

#[cfg(test)]
mod ahead;
#[cfg(test)]
mod casync;
#[cfg(test)]
mod commit;
#[cfg(test)]
mod common;
#[cfg(test)]
mod damaged;
#[cfg(test)]
mod device;
#[cfg(test)]
mod gc;
#[cfg(test)]
mod http;
#[cfg(test)]
mod keep;
#[cfg(test)]
mod mirrors;
#[cfg(test)]
mod opening;
#[cfg(test)]
mod publish;
#[cfg(test)]
mod server;
#[cfg(test)]
mod training;
#[cfg(test)]
mod unseen;
