//! A mount and the threads that read its requests.

use super::abi::opcode::Opcode;
use super::backing::Backings;
use super::buffer::{Buffer, Pool};
use super::device::{Device, Received};
use super::handler::Handler;
use super::init::{Agreement, InitError, Wishes, negotiate};
use super::mount::{MountError, MountOptions, MountPoint, mount};
use super::notify::Notifier;
use super::parse::{Flaw, Message, ParseError, Parser, opcode};
use super::reply::Replier;
use super::request::{Request, Unique};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// From how much on the data of a write stays in the buffer it was read into. Less is copied, at
/// 20 microseconds or so: keeping it would hold a buffer of 1 MiB for it.
const SHARE_BYTES_MIN: usize = 256 << 10;
/// Interrupts remembered because they may have overtaken their requests. One does so by the time
/// that a thread takes from reading a request to having handled it.
const INTERRUPTS_REMEMBERED: usize = 64;

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// Mounting failed.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The kernel and this module came to no agreement.
    #[error(transparent)]
    Init(#[from] InitError),
    /// No thread could be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// The device failed.
    #[error("cannot read the FUSE device: {0}")]
    Device(Errno),
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// By unmounting.
    Unmounted,
    /// By [`MountPoint::abort`], or by the kernel, which may limit how long requests take. What was
    /// left of the mount was detached.
    Aborted,
}

/// A file system that is mounted. Dropping it detaches the mount.
#[derive(Debug)]
pub struct Session {
    device: Arc<Device>,
    mount_point: MountPoint,
    agreement: Agreement,
    /// The kernel has said so. Then the mount's number may be another mount's by now.
    ended: bool,
}

impl Session {
    /// Mounts on `path` and agrees with the kernel. Requests wait until [`Session::run`].
    ///
    /// # Errors
    /// [`SessionError`] tells mounting from agreeing; nothing stays mounted.
    pub fn mount(
        path: impl AsRef<Path>,
        options: &MountOptions,
        wishes: &Wishes,
    ) -> Result<Self, SessionError> {
        let (device, mount_point) = mount(path.as_ref(), options)?;
        let device = Arc::new(device);
        match negotiate(&device, wishes) {
            Ok(agreement) => Ok(Self {
                device,
                mount_point,
                agreement,
                ended: false,
            }),
            Err(error) => {
                detach(&mount_point);
                Err(error.into())
            }
        }
    }

    /// What holds for this mount.
    #[must_use]
    pub fn agreement(&self) -> &Agreement {
        &self.agreement
    }

    /// Where it is mounted, to unmount or abort it from elsewhere.
    #[must_use]
    pub fn mount_point(&self) -> &MountPoint {
        &self.mount_point
    }

    /// Notifies the kernel about this mount.
    #[must_use]
    pub fn notifier(&self) -> Notifier {
        Notifier::new(Arc::clone(&self.device))
    }

    /// Registers files for opens that are passed through. Needs
    /// [`PASSTHROUGH`](super::InitFlags::PASSTHROUGH).
    #[must_use]
    pub fn backings(&self) -> Backings {
        Backings::new(Arc::clone(&self.device))
    }

    /// Reads requests on `threads` threads (at least one) and hands them to `handler`, until the
    /// mount ends.
    ///
    /// # Errors
    /// [`SessionError`] of starting threads or reading the device; the mount is detached then.
    pub fn run(
        mut self,
        threads: usize,
        handler: Arc<dyn Handler>,
    ) -> Result<SessionEnd, SessionError> {
        let shared = Arc::new(Shared {
            handler,
            parser: self.agreement.parser(),
            pool: Pool::new(self.agreement.buffer_bytes()),
            interrupts: Mutex::default(),
        });
        let mut running = Vec::new();
        let mut outcome = Ok(SessionEnd::Unmounted);
        for number in 0..threads.max(1) {
            let reader = Reader {
                device: self.reader_device(number),
                shared: Arc::clone(&shared),
            };
            let thread = thread::Builder::new().name(format!("fuse-{number}"));
            match thread.spawn(move || reader.run()) {
                Ok(handle) => running.push(handle),
                Err(error) => {
                    outcome = Err(SessionError::Thread(error));
                    self.give_up();
                    break;
                }
            }
        }
        for handle in running {
            match handle.join().expect("handlers' panics are caught") {
                Ok(()) => {}
                Err(errno) => {
                    // The other threads still wait for requests.
                    self.give_up();
                    outcome = Err(SessionError::Device(errno));
                }
            }
        }
        // The kernel may end the connection of a mount that still stands. It takes a mount off its
        // list before it ends the connection, so asking now tells the two apart.
        if outcome.is_ok() {
            match self.mount_point.is_mounted() {
                Ok(true) => outcome = Ok(SessionEnd::Aborted),
                Ok(false) | Err(_) => self.ended = true,
            }
        }
        outcome
    }

    /// A descriptor for a further thread: one of its own, or a shared one where the device may not
    /// be opened again.
    fn reader_device(&self, number: usize) -> Arc<Device> {
        if number == 0 {
            return Arc::clone(&self.device);
        }
        match self.device.try_clone() {
            Ok(device) => Arc::new(device),
            Err(errno) => {
                tracing::debug!(%errno, "threads share one descriptor of the FUSE device");
                Arc::clone(&self.device)
            }
        }
    }

    fn give_up(&self) {
        if let Err(error) = self.mount_point.abort() {
            tracing::warn!(%error, "cannot abort the mount; detaching it");
            detach(&self.mount_point);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.ended {
            detach(&self.mount_point);
        }
    }
}

fn detach(mount_point: &MountPoint) {
    if let Err(error) = mount_point.unmount(true) {
        tracing::warn!(%error, "cannot detach the mount");
    }
}

/// What the threads of a session share.
struct Shared {
    handler: Arc<dyn Handler>,
    parser: Parser,
    pool: Arc<Pool>,
    interrupts: Mutex<VecDeque<Unique>>,
}

/// One thread.
struct Reader {
    device: Arc<Device>,
    shared: Arc<Shared>,
}

impl Reader {
    fn run(&self) -> Result<(), Errno> {
        let mut buffer = self.shared.pool.take();
        loop {
            let len = match self.device.receive(buffer.room())? {
                Received::Message(len) => len,
                Received::Ended => return Ok(()),
            };
            let message;
            (message, buffer) = self.parse(buffer, len);
            match message {
                // A panic of the handler fails one request, not the mount of every user. Its
                // replier is dropped on the way here and has answered EIO.
                Ok(message) => {
                    let dispatched = catch_unwind(AssertUnwindSafe(|| self.dispatch(message)));
                    if dispatched.is_err() {
                        tracing::error!("a request made the file system panic");
                    }
                }
                Err(error) => self.refuse(error),
            }
        }
    }

    /// Parses the `len` bytes read into `buffer`; returns the buffer for the next message.
    fn parse(&self, buffer: Buffer, len: usize) -> (Result<Message, ParseError>, Buffer) {
        let bytes = buffer.message(len);
        if len < SHARE_BYTES_MIN || opcode(bytes) != Some(Opcode::Write) {
            return (self.shared.parser.parse(bytes), buffer);
        }
        let bytes = self.shared.pool.freeze(buffer, len);
        (
            self.shared.parser.parse_shared(&bytes),
            self.shared.pool.take(),
        )
    }

    fn dispatch(&self, message: Message) {
        let handler = &self.shared.handler;
        match message {
            Message::Request(request) => self.request(request),
            Message::Forget(forgets) => handler.forget(&forgets),
            Message::Interrupt { target } => {
                let mut interrupts = self.interrupts();
                if interrupts.len() == INTERRUPTS_REMEMBERED {
                    interrupts.pop_front();
                }
                interrupts.push_back(target);
                drop(interrupts);
                handler.interrupt(target);
            }
            Message::Destroy { unique } => {
                self.replier(unique).done();
            }
            Message::Init(offer) => {
                tracing::error!("the kernel made its offer twice");
                self.replier(offer.unique).error(Errno::IO);
            }
        }
    }

    fn request(&self, request: Request) {
        let unique = request.unique;
        let replier = self.replier(unique);
        self.shared.handler.handle(request, replier);
        // Another thread may have read an interrupt of this request before the handler knew of it.
        // Whichever of the two comes second here tells the handler.
        if self.interrupts().contains(&unique) {
            self.shared.handler.interrupt(unique);
        }
    }

    fn refuse(&self, error: ParseError) {
        let errno = match error.flaw {
            Flaw::UnknownOperation => Errno::NOSYS,
            _ => Errno::IO,
        };
        if errno == Errno::NOSYS {
            tracing::debug!(%error);
        } else {
            tracing::error!(%error);
        }
        if let Some(unique) = error.unique {
            self.replier(unique).error(errno);
        }
    }

    fn replier(&self, unique: Unique) -> Replier {
        Replier::new(Arc::clone(&self.device), unique)
    }

    fn interrupts(&self) -> std::sync::MutexGuard<'_, VecDeque<Unique>> {
        self.shared
            .interrupts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse::Forget;
    use super::super::request::{NodeId, Operation};
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    /// Writes down what it is told.
    #[derive(Default)]
    struct Told(Mutex<Vec<String>>);

    impl Handler for Told {
        fn handle(&self, request: Request, replier: Replier) {
            self.0
                .lock()
                .unwrap()
                .push(format!("request {}", request.unique));
            replier.done();
        }

        fn forget(&self, forgets: &[Forget]) {
            self.0
                .lock()
                .unwrap()
                .push(format!("forget {}", forgets.len()));
        }

        fn interrupt(&self, unique: Unique) {
            self.0.lock().unwrap().push(format!("interrupt {unique}"));
        }
    }

    fn reader(handler: Arc<Told>) -> (Reader, std::os::fd::OwnedFd) {
        let (ours, kernel) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        let shared = Shared {
            handler,
            parser: Parser::default(),
            pool: Pool::new(4096),
            interrupts: Mutex::default(),
        };
        let device = Arc::new(Device::from_fd(ours));
        (
            Reader {
                device,
                shared: Arc::new(shared),
            },
            kernel,
        )
    }

    fn request(unique: u64) -> Message {
        Message::Request(Request {
            unique: Unique(unique),
            resent: false,
            node: NodeId::ROOT,
            uid: 0,
            gid: 0,
            pid: 0,
            groups: Vec::new(),
            security: Vec::new(),
            operation: Operation::StatFs,
        })
    }

    fn interrupt(unique: u64) -> Message {
        Message::Interrupt {
            target: Unique(unique),
        }
    }

    #[test]
    fn an_interrupt_that_overtakes_its_request_is_told_again() {
        let told = Arc::new(Told::default());
        let (reader, _kernel) = reader(Arc::clone(&told));
        for message in [
            request(2),
            interrupt(4),
            request(6),
            request(4),
            interrupt(6),
        ] {
            reader.dispatch(message);
        }
        let expected = [
            "request 2",
            "interrupt 4",
            "request 6",
            "request 4",
            "interrupt 4",
            "interrupt 6",
        ];
        assert_eq!(*told.0.lock().unwrap(), expected);
    }

    #[test]
    fn interrupts_remembered_are_bounded() {
        let told = Arc::new(Told::default());
        let (reader, _kernel) = reader(Arc::clone(&told));
        for unique in 0..1000 {
            reader.dispatch(interrupt(unique));
        }
        assert_eq!(reader.interrupts().len(), INTERRUPTS_REMEMBERED);
    }

    #[test]
    fn only_large_writes_take_the_buffer_along() {
        let told = Arc::new(Told::default());
        let (mut reader, _kernel) = reader(told);
        Arc::get_mut(&mut reader.shared).unwrap().pool = Pool::new(1 << 20);
        for (opcode, len, kept) in [
            (16u32, SHARE_BYTES_MIN, false),
            (16, 4096, true),
            (21, SHARE_BYTES_MIN, true),
        ] {
            let mut buffer = reader.shared.pool.take();
            buffer.room()[4..8].copy_from_slice(zerocopy::IntoBytes::as_bytes(&opcode));
            let before = buffer.room().as_ptr();
            let (_, mut after) = reader.parse(buffer, len);
            // The parse fails and drops the data, so the buffer is spare at once; but another one
            // was taken before that.
            assert_eq!(after.room().as_ptr() == before, kept, "{opcode} {len}");
        }
    }
}
