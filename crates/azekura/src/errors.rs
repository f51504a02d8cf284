//! What a user is told when something fails: the cause, a hint, and a code with a page.
//!
//! Every failure of the program is a [`Failure`], so there is none without a code. The table of
//! codes is [`Code`]; `docs/errors/` has a page for each, and `cargo xtask tidy` compares the two.
//! Lower crates know nothing of codes: the conversions at the end of this file give their errors
//! the code and the hint that fit at the border to the user.
//!
//! ```text
//! error: cannot reach 127.0.0.1:7700: connection refused
//!   hint: is the server running there? `azekura doctor 127.0.0.1:7700` looks closer
//!   code: AZ0101 (docs/errors/AZ0101.md)
//! ```

mod disk;
mod store;
mod verify;

use base::FsError;
use client::transport::{CallError, ConnectError};
use mount::kernel::{MountError, SessionError};
use server::{DataError, ServerError, StorageError};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use wire::identity::IdentityError;
use wire::link::LinkError;
use wire::message::{AdminError, Farewell, Refusal};

/// What commands return.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// What a process that failed ends with.
const EXIT_FAILED: u8 = 1;

/// Declares the codes: a name, the number that users see, what it is for, and the hint that is
/// given if the place of the error has no better one.
macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $hint:literal;)*) => {
        /// The kinds of trouble, stable for programs and for people who search.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            /// All of them.
            const ALL: &[Self] = &[$(Self::$name,)*];

            /// As users see it.
            pub(crate) const fn number(self) -> &'static str {
                match self { $(Self::$name => $number,)* }
            }

            /// What to do about it, in general. Empty where only the place knows.
            const fn hint(self) -> &'static str {
                match self { $(Self::$name => $hint,)* }
            }
        }
    };
}

codes! {
    /// A broken assumption of the program.
    Internal = "AZ0001", "this is a bug; please report it with what led here";
    /// A file, directory or system call of this machine failed.
    Local = "AZ0002", "";
    /// A configuration or state file that cannot be read.
    Config = "AZ0003", "correct the line, or name another directory with AZEKURA_CONFIG_DIR";
    /// Interrupted by a signal.
    Interrupted = "AZ0004", "";

    /// Nobody answers at the address.
    Unreachable = "AZ0101", "is the server running there?";
    /// The server does not answer in time.
    TimedOut = "AZ0102", "the server or the line is stuck; a longer --timeout may help";
    /// The server does not believe the credential.
    Unauthenticated = "AZ0103", "enrol again: azekura login HOST:PORT -";
    /// No common version of the protocol.
    Version = "AZ0104", "use the same version of azekura on both sides";
    /// The server belongs to another cluster than the credential.
    OtherCluster = "AZ0105", "made anew? enrol again; where it runs, restart it as its user";
    /// The server is at a limit or stopping.
    Overloaded = "AZ0106", "try again in a moment";
    /// What answers is no server of ours, or it answers nonsense.
    Protocol = "AZ0107", "is the address right? A client with --plain needs a server with --plain";
    /// The host name does not resolve.
    Resolve = "AZ0108", "check the spelling and the name service (getent hosts NAME)";
    /// A manager that does not lead.
    Standby = "AZ0109", "name the one that leads, or all of them: HOST:PORT,HOST:PORT";

    /// There is no credential for this server.
    NoCredential = "AZ0201", "with a join string of an administrator: azekura login HOST:PORT -";
    /// The credential's file cannot be used.
    BadCredential = "AZ0202", "";
    /// Text that is not a join string.
    JoinStringText = "AZ0203", "copy it whole; it begins with azk1-";
    /// The join string is unknown, used or expired.
    JoinStringUsed = "AZ0204", "ask an administrator for a new one: azekura join create ADDRESS";
    /// The credential does not allow this.
    Forbidden = "AZ0205", "administration needs the credential of an administrator";

    /// No such volume or credential; the hint is for the former.
    NotFound = "AZ0301", "`azekura volume list ADDRESS` shows what there is";
    /// The name is taken.
    Exists = "AZ0302", "choose another name, or delete the one that is there";
    /// A name or path that the server does not take.
    Invalid = "AZ0303", "";
    /// Somebody uses it.
    InUse = "AZ0304", "`azekura status ADDRESS` shows who uses it";
    /// The server's own disk refused.
    ServerDisk = "AZ0305", "look at the server's log and at its disk";
    /// A bound of the server is reached.
    ServerLimit = "AZ0306", "remove what is not needed any more, or use another server";
    /// The path of an export leads to another directory. Servers name it in a volume's state.
    OtherDirectory = "AZ0307", "`azekura volume show ADDRESS/VOLUME` says what is there instead";

    /// A file or directory that does not exist.
    FileNotFound = "AZ0401", "correct the path; `azekura ls` lists directories of volumes";
    /// The server does not let this user.
    FileDenied = "AZ0402", "the server judges by its own file system, for your user and groups";
    /// No space or quota left.
    NoSpace = "AZ0403", "free space at the target, or ask for a larger quota";
    /// Another failure of a file operation.
    FileFailed = "AZ0404", "if all files fail: is it served? `azekura volume list` says so";
    /// Some files were not copied.
    CopyIncomplete = "AZ0405", "the files are named above; repeat with -p --continue for the rest";
    /// What was written is not what was read.
    Mismatch = "AZ0406", "do not trust the copy; see the page of this code";

    /// `/dev/fuse` is not there or may not be opened.
    NoFuse = "AZ0501", "`azekura doctor` says what is missing";
    /// The directory cannot be mounted on.
    MountPoint = "AZ0502", "";
    /// The kernel or fusermount3 refused to mount.
    MountRefused = "AZ0503", "`azekura doctor` looks at what mounting needs";
    /// There is no mount of ours at the path.
    NotMounted = "AZ0504", "findmnt -t fuse.azekura lists what is mounted";
    /// Programs use the mount.
    MountBusy = "AZ0505", "fuser -vm shows who; --lazy detaches it now";
    /// Written data could not be sent to the server in time.
    Unwritten = "AZ0506", "it is still mounted; repeat, or give the data up with --force";
    /// The process of the mount ended before it was ready.
    MountEnded = "AZ0507", "";
    /// The mount does not answer.
    MountSilent = "AZ0508", "azekura umount takes it off, if need be with --force";
    /// An option of fstab or `-o` that does not exist.
    MountOption = "AZ0509", "azekura mount --help lists the options";

    /// The directory is no server's data directory.
    NotInitialised = "AZ0601", "is the path right? if so, --init makes a new cluster in it";
    /// The data directory cannot be used.
    DataDirectory = "AZ0602", "";
    /// Another server runs on the data directory.
    DataInUse = "AZ0603", "stop that one, or give this one a directory of its own";
    /// The address cannot be listened on.
    Listen = "AZ0604", "ss -ltnp shows who listens on the port";
    /// The server may not do what it must be able to do.
    ServerRights = "AZ0605", "run the server as root";
    /// What several managers keep together.
    Meta = "AZ0606", "the page of this code says what to do";

    /// The doctor found something that keeps Azekura from working.
    Unwell = "AZ0701", "each line above says what to do";

    /// There is no store on the device.
    NotAStore = "AZ0801", "is the path right? `azekura store format` makes a store";
    /// Another program has the device.
    DeviceInUse = "AZ0802", "a server may run on it, or it is mounted or a loop \
                              device; fuser -v PATH, losetup -j PATH and lsblk show who";
    /// Something is on the device that is to become a store.
    NotEmpty = "AZ0803", "if nothing of it is needed any more: --overwrite";
    /// What lies on the device is not what was written there.
    StoreDamaged = "AZ0804", "`azekura store check PATH --data` says what can still be read";
    /// A newer release wrote the store.
    NewerStore = "AZ0805", "use that release or a later one; nothing was changed";
    /// Sizes or lifetimes that do not make a store.
    StoreSizes = "AZ0806", "`azekura store format --help` says what goes together";
    /// The device gave an error.
    DeviceFailed = "AZ0807", "the kernel's log (dmesg) says more about the device";
    /// The check of a store found something.
    StoreFindings = "AZ0808", "each line above is one; the page of this code says what to do";
    /// The path is not a device that can be used.
    NotADevice = "AZ0809", "a store is on a block device or in a file";
    /// A store that the server has already, at another path.
    StoreTwice = "AZ0810", "a server has one store of an identity; the page of this code says more";
    /// A server works without one of its stores.
    StoreMissing = "AZ0811", "bring it back and restart the server; until then its files are EIO";
    /// A store is there in an older state than it was once in.
    StoreOlder = "AZ0812", "is it a copy? put the newest one back; the page of this code says more";

    /// It does not fit; what would is said beside.
    Refused = "AZ0901", "";
    /// No such reservation.
    NoReservation = "AZ0902", "`azekura reserve list ADDRESS` shows what there is";
    /// A question about reservations that makes no sense.
    ReserveInvalid = "AZ0903", "`azekura reserve create --help` says what goes together";
    /// The time of a reservation is over.
    ReserveOver = "AZ0904", "reserve the time that is still needed: azekura reserve create";
    /// Nothing can be reserved there.
    Unreservable = "AZ0905", "`azekura status` lists stores, `azekura volume list` volumes";
    /// The manager is not there at the moment.
    ManagerDown = "AZ0906", "tickets go on meanwhile; asking again does no harm";
    /// Something was written in the space of a reservation.
    SpaceInUse = "AZ0907", "--discard gives the space back with what was written";
    /// The ledger of reservations cannot be opened or read.
    LedgerFailed = "AZ0908", "its page says when a backup is needed, and what is lost without one";
    /// Who asks may not reserve.
    MayNotReserve = "AZ0909", "ask an administrator: azekura reserve limits ADDR --allow UID";
    /// A ticket that is not good.
    BadTicket = "AZ0910", "`azekura reserve show ADDR/VOLUME NAME --json` prints what is good now";
    /// A storage server is away, or does not do its part.
    StorageAway = "AZ0911", "`azekura status ADDR` shows who is away; the others go on";

    /// A repository of images that cannot be used.
    DiskRepository = "AZ1001", "is the address right, and does the server run?";
    /// No such image, or not all of it is there.
    DiskNotFound = "AZ1002", "`azekura disk log --at REPOSITORY` shows what there is";
    /// Signed by somebody who is not trusted.
    DiskUntrusted = "AZ1003", "ask the publisher for the key; then: --key KEY";
    /// What lies in a repository, a cache or an overlay is not what it should be.
    DiskDamaged = "AZ1004", "`azekura disk check --at REPOSITORY` says what is concerned";
    /// A name, size or combination that makes no sense.
    DiskInvalid = "AZ1005", "`azekura disk --help` says how images are named";
    /// Somebody else has it.
    DiskBusy = "AZ1006", "`azekura disk list` shows the disks that are in use";
    /// The check of a repository found something.
    DiskFindings = "AZ1007", "each line above is one; the page of this code says what to do";
    /// The image was written to while it was read.
    DiskChanged = "AZ1008", "publish when nobody writes to it, or publish a copy";
    /// There is nothing that was written onto the disk.
    NoOverlay = "AZ1009", "a disk is writable with --writable";
    /// An image in a format that cannot be read here.
    ImageFormat = "AZ1010", "convert it: qemu-img convert -O raw IMAGE image.raw";
    /// No disk is served or attached there.
    NotAttached = "AZ1011", "`azekura disk list` shows the disks that are in use";
    /// The process of a disk ended before it was ready.
    DiskEnded = "AZ1012", "";
    /// What was written onto a disk could not be made durable.
    DiskUnwritten = "AZ1013", "the page of this code says what is safe";
    /// No loop device could be had.
    NoLoop = "AZ1014", "without --loop, the disk is a file";
    /// Some of an image that is to be used without a network is not here.
    DiskIncomplete = "AZ1015", "the same command, with a network, fetches what is missing";
    /// Rich ACLs are not turned on.
    AclOff = "AZ1101", "azekura acl enable ADDR/VOLUME turns them on";
    /// Text that is no ACL, or no entry of one.
    AclText = "AZ1102", "TYPE:FLAGS:WHO:RIGHTS such as A::aya:rwa, or u:aya:rw, or user:aya:read";
    /// The volume cannot have rich ACLs.
    AclUnsupported = "AZ1103", "its page says which volumes can";
    /// Nobody of that name.
    AclWho = "AZ1104", "`getent passwd` and `getent group` list who is known; numbers do, too";
    /// A crash run found that something promised was lost.
    CrashLoss = "AZ1201", "each failure has the command that tries it again";
    /// What a crash run needs is not there, or this user may not use it.
    CrashNeeds = "AZ1202", "loop devices, mounts and /dev/fuse are root's";
    /// What a crash run judges does not go on.
    CrashStuck = "AZ1203", "dmesg may say more; the page of this code says what to look at";
    /// A workload, state or log that cannot be used.
    CrashInvalid = "AZ1204", "`azekura verify crash --help` says what there is";
    /// Another run measures on this machine.
    SpeedBusy = "AZ1205", "wait until it has ended: two at once would measure each other";
    /// What measures failed, or not everything could be measured.
    SpeedFailed = "AZ1206", "the message has what the program said; dmesg may have more";
    /// A machine that is emulated does not do what it must.
    PowercutGuest = "AZ1207", "the page of this code says how to see what it does";
    /// The kernel of such a machine cannot be had.
    PowercutKernel = "AZ1208", "`apt-get update`, as root, if apt does not know the package";
    /// What a run goes on behind is another run's.
    PowercutState = "AZ1209", "give it another file, or what the run before was given";
    /// What should be the result of a run is none that can be used.
    ResultInvalid = "AZ1210", "results are what `azekura verify crash --json` and the others print";
    /// Not all parts of a profile have a result.
    ProfileIncomplete = "AZ1211", "the table says what is missing, and why";
    /// Two recorders of the same writes have different logs, or different verdicts.
    RecordersDiffer = "AZ1212", "one of the two recorders, or the judge, is wrong; report it";
}

/// A failure on its way to the user.
#[derive(Debug)]
pub(crate) struct Failure {
    code: Code,
    message: String,
    hint: Option<String>,
    exit: u8,
}

impl Failure {
    /// With the code's own hint.
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
            exit: EXIT_FAILED,
        }
    }

    /// A failure of this machine's operating system.
    pub(crate) fn local(what: impl fmt::Display, error: impl fmt::Display) -> Self {
        Self::new(Code::Local, format!("{what}: {error}"))
    }

    /// A signal ended the command, in order.
    pub(crate) fn interrupted(how_far: impl Into<String>) -> Self {
        Self::new(Code::Interrupted, how_far)
    }

    /// The reader of standard output has seen enough: the command ends, and nothing is wrong.
    pub(crate) fn enough() -> Self {
        Self::new(Code::Interrupted, "standard output is closed").exit(0)
    }

    /// Replaces the code's own hint.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Says first what was being done.
    #[must_use]
    pub(crate) fn during(mut self, what: impl fmt::Display) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// Says last what is left of it.
    #[must_use]
    pub(crate) fn leaving(mut self, what: impl fmt::Display) -> Self {
        self.message = format!("{}; {what}", self.message);
        self
    }

    /// Ends the process with another code than 1.
    #[must_use]
    pub(crate) fn exit(mut self, exit: u8) -> Self {
        self.exit = exit;
        self
    }

    /// What the process ends with.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.exit)
    }

    /// Whether the user is to be told.
    pub(crate) fn is_trouble(&self) -> bool {
        self.exit != 0
    }

    pub(crate) fn code(&self) -> Code {
        self.code
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn hint_text(&self) -> &str {
        self.hint.as_deref().unwrap_or(self.code.hint())
    }

    /// For the pipe from a mount's process to the command that started it.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "code": self.code.number(), "message": self.message, "hint": self.hint_text(),
        })
    }

    /// Reads what [`Self::to_json`] wrote.
    pub(crate) fn from_json(value: &serde_json::Value) -> Option<Self> {
        let text = |key: &str| value.get(key)?.as_str().map(str::to_owned);
        let number = text("code")?;
        let code = Code::ALL.iter().find(|code| code.number() == number)?;
        Some(Self {
            code: *code,
            message: text("message")?,
            hint: text("hint"),
            exit: EXIT_FAILED,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        if !self.hint_text().is_empty() {
            write!(f, "\n  hint: {}", self.hint_text())?;
        }
        let number = self.code.number();
        write!(f, "\n  code: {number} (docs/errors/{number}.md)")
    }
}

impl std::error::Error for Failure {}

/// Says on the way what a local operation was about.
pub(crate) trait Context<T> {
    /// An error becomes [`Code::Local`] with `what` before the system's words.
    fn context(self, what: impl fmt::Display) -> Result<T>;
}

impl<T> Context<T> for io::Result<T> {
    fn context(self, what: impl fmt::Display) -> Result<T> {
        self.map_err(|error| Failure::local(what, plain_io(&error)))
    }
}

impl<T> Context<T> for std::result::Result<T, rustix::io::Errno> {
    fn context(self, what: impl fmt::Display) -> Result<T> {
        self.map_err(|error| Failure::local(what, plain_io(&error.into())))
    }
}

/// The system's words without its number: "connection refused", not "... (os error 111)".
pub(crate) fn plain_io(error: &io::Error) -> String {
    let text = error.to_string();
    let plain = plain_text(&text);
    // The C library begins with a capital; here it continues a sentence.
    let mut chars = plain.chars();
    match chars.next() {
        Some(first) if chars.clone().next().is_some_and(char::is_lowercase) => {
            first.to_lowercase().chain(chars).collect()
        }
        _ => plain.to_owned(),
    }
}

/// A text that ends with the system's words, without their number.
fn plain_text(text: &str) -> &str {
    text.split_once(" (os error")
        .map_or(text, |(words, _)| words)
}

impl From<IdentityError> for Failure {
    fn from(error: IdentityError) -> Self {
        Self::new(Code::BadCredential, error.to_string())
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Unreachable { name, error } => from_link(&name, &error),
            ConnectError::Refused { name, reason } => {
                let hint = match reason {
                    Farewell::Unauthenticated => format!("enrol again: azekura login {name} -"),
                    _ => String::new(),
                };
                let code = match reason {
                    Farewell::Version { .. } => Code::Version,
                    Farewell::Cluster => Code::OtherCluster,
                    Farewell::Unauthenticated | Farewell::ForeignSession => Code::Unauthenticated,
                    Farewell::Overloaded | Farewell::Ending | Farewell::Stopping => {
                        Code::Overloaded
                    }
                    Farewell::Protocol | Farewell::Replaced => Code::Protocol,
                    Farewell::Standby { .. } => Code::Standby,
                };
                let failure = Self::new(code, format!("{name} refused the connection: {reason}"));
                if hint.is_empty() {
                    failure
                } else {
                    failure.hint(hint)
                }
            }
            ConnectError::Protocol { .. } => Self::new(Code::Protocol, error.to_string()),
            ConnectError::Identity(error) => error.into(),
            ConnectError::Random => Self::new(Code::Local, error.to_string()),
        }
    }
}

/// A connection to `name` that could not be made or broke.
pub(crate) fn from_link(name: &str, error: &LinkError) -> Failure {
    let cannot = |why: &str| format!("cannot reach {name}: {why}");
    match error {
        LinkError::Stalled(time) => Failure::new(
            Code::TimedOut,
            cannot(&format!("no answer within {} s", time.as_secs())),
        ),
        LinkError::Frame(_) => Failure::new(
            Code::Protocol,
            format!("{name} does not answer as an Azekura server"),
        ),
        LinkError::Closed => Failure::new(
            Code::Protocol,
            format!("{name} closed the connection without a word"),
        ),
        LinkError::Io(error) if error.kind() == io::ErrorKind::InvalidData => {
            // rustls reports through this kind: the handshake failed or its records are no records.
            let text = error.to_string();
            if text.contains("certificate") {
                let message = format!("{name} is not a server of the cluster known here: {text}");
                return Failure::new(Code::OtherCluster, message);
            }
            Failure::new(
                Code::Protocol,
                format!("no TLS connection to {name}: {text}"),
            )
        }
        LinkError::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => Failure::new(
            Code::Protocol,
            format!("{name} closed the connection during the handshake"),
        ),
        LinkError::Io(error) => Failure::new(Code::Unreachable, cannot(&plain_io(error))).hint(
            format!("is the server running there? `azekura doctor {name}` looks closer"),
        ),
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        let code = match error {
            CallError::TimedOut => Code::TimedOut,
            CallError::Refused(Refusal::Forbidden | Refusal::ForeignUser) => Code::Forbidden,
            CallError::Refused(Refusal::Overloaded) => Code::Overloaded,
            CallError::Refused(Refusal::JoinString) => Code::JoinStringUsed,
            CallError::Refused(_) | CallError::Protocol => Code::Protocol,
            CallError::Closed => Code::Unauthenticated,
            CallError::TooLong => Code::Invalid,
            CallError::Failed(error) => return error.into(),
        };
        let failure = Self::new(code, error.to_string());
        match error {
            CallError::Refused(Refusal::ForeignUser) => failure.hint(
                "a credential of the kind user:UID speaks for that user alone; all users of a \
                 machine need one of the kind host",
            ),
            _ => failure,
        }
    }
}

impl From<FsError> for Failure {
    fn from(error: FsError) -> Self {
        let code = match error {
            FsError::NotFound => Code::FileNotFound,
            FsError::NotPermitted | FsError::AccessDenied => Code::FileDenied,
            FsError::NoSpace | FsError::QuotaExceeded => Code::NoSpace,
            FsError::TimedOut => Code::TimedOut,
            _ => Code::FileFailed,
        };
        Self::new(code, error.to_string())
    }
}

/// What an administrator's request to `server` came to.
pub(crate) fn from_admin(server: impl fmt::Display, error: AdminError, message: &str) -> Failure {
    let code = match error {
        AdminError::NotFound => Code::NotFound,
        AdminError::Exists => Code::Exists,
        AdminError::Invalid => Code::Invalid,
        AdminError::InUse | AdminError::Reserved => Code::InUse,
        AdminError::Io => Code::ServerDisk,
        AdminError::Limit => Code::ServerLimit,
    };
    let failure = Failure::new(code, crate::output::without_numbers(message));
    match error {
        AdminError::NotFound => failure.hint(format!(
            "`azekura volume list {server}` shows what there is"
        )),
        AdminError::InUse => failure.hint(format!("`azekura status {server}` shows who uses it")),
        AdminError::Reserved => failure.hint(format!(
            "`azekura reserve list {server}/VOLUME` shows what, `azekura reserve cancel \
             {server}/VOLUME NAME` gives it back"
        )),
        _ => failure,
    }
}

impl From<ServerError> for Failure {
    fn from(error: ServerError) -> Self {
        let message = error.to_string();
        match error {
            ServerError::Data(error) => match error {
                // In the command line's words: what to do about it is the code's hint.
                DataError::NotInitialised(path) => Self::new(
                    Code::NotInitialised,
                    format!("{} is not a server's data directory", path.display()),
                ),
                DataError::InUse(path) => Self::new(
                    Code::DataInUse,
                    format!("{} is in use by another server", path.display()),
                ),
                DataError::Io { path, source } => data_io(&path, &source),
                DataError::Identity(_) => Self::new(Code::BadCredential, message),
                DataError::Engine(_)
                | DataError::Entry(_)
                | DataError::NewerEntry(_)
                | DataError::MetaInUse(_)
                | DataError::MetaForeign(_)
                | DataError::ManagersMax => Self::new(Code::Meta, message),
                _ => Self::new(Code::DataDirectory, message),
            },
            ServerError::Identity(_) => Self::new(Code::BadCredential, message),
            ServerError::Export(_) => Self::new(Code::ServerRights, message),
            ServerError::Listen { address, source } => listen_failure(address, &source),
            ServerError::Storage(error) => error.into(),
            ServerError::Manager(_) => Self::new(Code::LedgerFailed, message),
        }
    }
}

/// The data directory, or a file in it, could not be used.
fn data_io(path: &Path, error: &io::Error) -> Failure {
    let message = format!("{}: {}", path.display(), plain_io(error));
    let failure = Failure::new(Code::DataDirectory, message);
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            failure.hint("a data directory is for its owner alone: run the server as that user")
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            failure.hint("--data names a directory; choose an empty or a new one")
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            failure.hint("make room there: a server writes some into it whenever it starts")
        }
        _ => failure,
    }
}

/// `address` could not be listened on.
pub(crate) fn listen_failure(address: SocketAddr, error: &io::Error) -> Failure {
    let message = format!("cannot listen on {address}: {}", plain_io(error));
    let failure = Failure::new(Code::Listen, message);
    match error.kind() {
        io::ErrorKind::AddrNotAvailable => {
            failure.hint("`ip address` lists this machine's addresses; 0.0.0.0 stands for all")
        }
        io::ErrorKind::PermissionDenied => failure.hint("ports below 1024 are root's"),
        _ => failure,
    }
}

impl From<StorageError> for Failure {
    fn from(error: StorageError) -> Self {
        let text = error.to_string();
        match error {
            StorageError::Device(error) => error.into(),
            StorageError::Data(error) => ServerError::Data(error).into(),
            StorageError::Store { path, source } => Self::from(source).during(path.display()),
            StorageError::Calibrate { path, source } => Self::from(source).during(path.display()),
            StorageError::Twice { .. } => Self::new(Code::StoreTwice, text),
            StorageError::NotOlder(_) => Self::new(Code::StoreOlder, text)
                .hint("start the server without --accept-older-store"),
            StorageError::NotMissing(_) => {
                Self::new(Code::StoreMissing, text).hint("start the server without --give-up-store")
            }
            StorageError::Lost { .. } => Self::new(Code::StoreMissing, text)
                .hint("`azekura store format` makes another store there"),
            StorageError::TooMany | StorageError::TooManyLost | StorageError::TooManyRevoked => {
                Self::new(Code::ServerLimit, text)
            }
            StorageError::Thread(_) => Self::new(Code::Local, text),
        }
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        let message = error.to_string();
        let SessionError::Mount(error) = error else {
            return Self::new(Code::MountRefused, message);
        };
        let code = match error {
            MountError::Device(errno) => {
                let why = plain_io(&errno.into());
                return Self::new(Code::NoFuse, format!("cannot open /dev/fuse: {why}"));
            }
            MountError::Path { .. } | MountError::Stale { .. } => Code::MountPoint,
            _ => Code::MountRefused,
        };
        Self::new(code, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn an_error_has_cause_hint_and_code() {
        let error = LinkError::Io(io::Error::from_raw_os_error(111));
        let failure: Failure = ConnectError::Unreachable {
            name: "127.0.0.1:7700".to_owned(),
            error,
        }
        .into();
        expect![[r#"
            error: cannot reach 127.0.0.1:7700: connection refused
              hint: is the server running there? `azekura doctor 127.0.0.1:7700` looks closer
              code: AZ0101 (docs/errors/AZ0101.md)"#]]
        .assert_eq(&failure.to_string());
    }

    #[test]
    fn numbers_are_unique_and_well_formed() {
        let mut numbers: Vec<&str> = Code::ALL.iter().map(|code| code.number()).collect();
        numbers.sort_unstable();
        let count = numbers.len();
        numbers.dedup();
        assert_eq!(numbers.len(), count);
        for number in numbers {
            let digits = number.strip_prefix("AZ").expect("codes begin with AZ");
            assert!(
                digits.len() == 4 && digits.parse::<u16>().is_ok(),
                "{number}"
            );
        }
    }

    #[test]
    fn cause_and_hint_do_not_say_the_same() {
        let data = |error: fn(std::path::PathBuf) -> DataError| {
            Failure::from(ServerError::Data(error("srv".into()))).to_string()
        };
        expect![[r#"
            error: srv is not a server's data directory
              hint: is the path right? if so, --init makes a new cluster in it
              code: AZ0601 (docs/errors/AZ0601.md)"#]]
        .assert_eq(&data(DataError::NotInitialised));
        expect![[r#"
            error: srv is in use by another server
              hint: stop that one, or give this one a directory of its own
              code: AZ0603 (docs/errors/AZ0603.md)"#]]
        .assert_eq(&data(DataError::InUse));
    }

    #[test]
    fn the_reason_of_the_system_chooses_the_hint() {
        let address = SocketAddr::from(([192, 0, 2, 1], 7700));
        let listen = |kind: io::ErrorKind| listen_failure(address, &kind.into()).to_string();
        assert!(listen(io::ErrorKind::AddrInUse).contains("ss -ltnp"));
        assert!(listen(io::ErrorKind::AddrNotAvailable).contains("`ip address`"));
        assert!(listen(io::ErrorKind::PermissionDenied).contains("1024"));
        let denied = DataError::Io {
            path: "srv".into(),
            source: io::Error::from_raw_os_error(13),
        };
        expect![[r#"
            error: srv: permission denied
              hint: a data directory is for its owner alone: run the server as that user
              code: AZ0602 (docs/errors/AZ0602.md)"#]]
        .assert_eq(&Failure::from(ServerError::Data(denied)).to_string());
    }

    #[test]
    fn hints_name_what_is_known() {
        let refused = from_admin("far:7700", AdminError::InUse, "it is mounted (os error 16)");
        expect![[r#"
            error: it is mounted
              hint: `azekura status far:7700` shows who uses it
              code: AZ0304 (docs/errors/AZ0304.md)"#]]
        .assert_eq(&refused.to_string());
        let reserved = from_admin("far:7700", AdminError::Reserved, "run42 is");
        assert!(reserved.hint_text().contains("reserve cancel far:7700/"));
        let unknown = ConnectError::Refused {
            name: "far:7700".to_owned(),
            reason: Farewell::Unauthenticated,
        };
        let hint = "enrol again: azekura login far:7700 -";
        assert_eq!(Failure::from(unknown).hint_text(), hint);
    }

    #[test]
    fn failures_pass_through_the_pipe_unchanged() {
        let failure = Failure::new(Code::MountPoint, "no").hint("make it");
        let back = Failure::from_json(&failure.to_json()).expect("our own form");
        assert_eq!(back.to_string(), failure.to_string());
        assert!(Failure::from_json(&serde_json::json!({"code": "none of ours"})).is_none());
    }
}
