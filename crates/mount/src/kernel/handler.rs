//! The file system's side of a session.

use super::parse::Forget;
use super::reply::Replier;
use super::request::{Request, Unique};

/// Answers requests. Called from all threads of the session at once.
pub trait Handler: Send + Sync {
    /// Answers `request` through `replier`, at once or from another thread or task later. While it
    /// runs, this thread reads no other request; with all threads here, the mount waits.
    ///
    /// An operation that is not supported is answered with ENOSYS: for most operations the kernel
    /// then never asks again and does without.
    fn handle(&self, request: Request, replier: Replier);

    /// The kernel has forgotten lookups. Comes in batches, without an answer.
    fn forget(&self, forgets: &[Forget]);

    /// A signal has come for the caller of a request, and it would rather not wait.
    ///
    /// Any signal is told, not only those that end a process, and each request is told of once. So
    /// waits that POSIX lets a signal end (locks) are answered with EINTR at once; others only when
    /// the caller is [dying](super::Process::dying), to be asked again for as long as the request
    /// takes: until it is answered, the process cannot end.
    ///
    /// `unique` is known to [`Handler::handle`] already if it is still to be answered: when an
    /// interrupt overtakes its request, the session tells it again after `handle`. So it may also
    /// be told twice, and of a request that was answered before.
    fn interrupt(&self, unique: Unique);
}
