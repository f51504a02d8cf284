//! Every bound of the system, each with its reason. A bound that depends on another says so in a
//! `const` assertion at the end.

mod disk;
mod verify;

pub use disk::*;
pub use verify::*;

use std::time::Duration;

/// Longest path component, as in every Linux file system (`NAME_MAX`).
pub const NAME_BYTES_MAX: usize = 255;
/// Longest symbolic link target, as in Linux (`PATH_MAX` without its NUL).
pub const LINK_TARGET_BYTES_MAX: usize = 4095;
/// Longest handle: the kernel's largest file handle (128) with its type, a volume's identity and an
/// authentication code.
pub const HANDLE_BYTES_MAX: usize = 192;
/// Largest extended attribute value, as in Linux (`XATTR_SIZE_MAX`).
pub const XATTR_BYTES_MAX: usize = 65536;
/// Largest list of extended attribute names, as in Linux (`XATTR_LIST_MAX`).
pub const XATTR_LIST_BYTES_MAX: usize = 65536;
/// Entries of one POSIX ACL: as many as an extended attribute holds, four bytes and eight for each.
/// File systems and FUSE take fewer and say so themselves.
pub const POSIX_ACL_ENTRIES_MAX: usize = (XATTR_BYTES_MAX - 4) / 8;
/// Entries of one rich ACL in memory: a view of a directory with two POSIX ACLs of the largest size
/// has two for each of theirs. What is stored or sent is bounded by its bytes.
pub const RICH_ACL_ENTRIES_MAX: usize = 4 * POSIX_ACL_ENTRIES_MAX;
/// Longest name of a principal whom nobody here can be found to be: a user and a domain name.
pub const PRINCIPAL_BYTES_MAX: usize = 255;
/// Most supplementary groups of a caller, as in Linux (`NGROUPS_MAX`).
pub const GROUPS_MAX: usize = 65536;

/// Largest postcard body of a frame. A full page of directory entries with attributes and handles
/// (4,096 entries of about 200 bytes) and 65,536 groups of 5 bytes both fit.
pub const FRAME_BODY_BYTES_MAX: usize = 1 << 20;
/// Largest raw payload of a frame. One FUSE request is at most 1 MiB; larger frames would let one
/// transfer hold up the replies behind it on its connection (8 ms at 1 Gbit/s for 1 MiB).
pub const FRAME_PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// Largest piece of file data in one request or reply.
pub const DATA_BYTES_MAX: u32 = 1 << 20;
/// Steps in one compound request: enough for a path of 64 components, small enough for one turn of
/// a worker.
pub const COMPOUND_STEPS_MAX: usize = 64;
/// Directory entries in one reply.
pub const DIRECTORY_ENTRIES_MAX: usize = 4096;
/// Contents of a small file sent with its attributes. At 64 KiB the transfer at 1 Gbit/s takes half
/// a millisecond: less than any distance worth the name.
pub const INLINE_BYTES_MAX: u32 = 64 << 10;

/// Connections of one session: one for metadata and demand reads, the rest for bulk. With Linux's
/// default buffers one connection carries about 28 MB/s at 100 ms (measured), so a gigabit needs at
/// least five.
pub const CONNECTIONS_MAX: usize = 9;
/// Bytes of one request that warms a new connection, in each direction. The rounds of 14, 28, 56
/// and 112 KB take four round trips; eight connections then carry twice 112 KB each per round trip,
/// 150 Mbit/s at 100 ms, and a gigabit after three more.
pub const WARM_BYTES_MAX: u32 = 128 << 10;
/// Sessions of one server. Those that have ended and have a request at a device are counted apart:
/// they are no more than there are threads.
pub const SESSIONS_MAX: usize = 1024;
/// Connections that have not yet authenticated themselves, over all peers.
pub const CONNECTIONS_PENDING_MAX: usize = 256;
/// Time a connection has to authenticate itself.
pub const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
/// Requests of one connection that a server works on at once; it reads no further frame beyond.
pub const CONNECTION_REQUESTS_MAX: usize = 1024;
/// Bytes of replies that wait for one connection's socket; no request is begun beyond. A peer that
/// does not read holds at most this much of the server's memory.
pub const CONNECTION_REPLY_BYTES_MAX: usize = 32 << 20;
/// Bytes of requests of one connection that a server has read and not yet carried out. A gigabit at
/// 100 ms is 12 MB; the client's window is below that on each of its connections.
pub const CONNECTION_REQUEST_BYTES_MAX: usize = 32 << 20;
/// Bytes of replies that wait for the sockets of all connections of one credential: twice what a
/// line of ten gigabits carries in 100 ms. Who reads nothing holds this much and no more, with
/// however many sessions.
pub const CREDENTIAL_REPLY_BYTES_MAX: usize = 256 << 20;
/// What of that a credential has in any case, whatever the others hold.
pub const CREDENTIAL_REPLY_BYTES_ALWAYS: usize = 16 << 20;
/// Bytes of replies that wait for all sockets of a server.
pub const SERVER_REPLY_BYTES_MAX: usize = 1 << 30;
/// Bytes of requests of one credential that a server has read and not yet carried out: as much as a
/// line of ten gigabits carries in 100 ms.
pub const CREDENTIAL_REQUEST_BYTES_MAX: usize = 128 << 20;
/// Bytes of requests of those sessions of one credential that have a ticket for an export: beside
/// the others', so what is reserved on a machine does not wait for what else it does.
pub const CREDENTIAL_RESERVED_REQUEST_BYTES_MAX: usize = 64 << 20;
/// Bytes of frames with large payloads of one credential that are being read. Who sends many halves
/// of frames holds this much for [`FRAME_TIME_MAX`].
pub const CREDENTIAL_FRAME_BYTES_MAX: usize = 256 << 20;
/// Time within which a frame must be complete once its first byte is there: 35 KB/s for the largest
/// one. Who sends slower holds a buffer for nothing.
pub const FRAME_TIME_MAX: Duration = Duration::from_secs(60);
/// Threads that a server begins with: enough to keep two cores busy and a disk besides.
pub const WORKERS_MIN: usize = 4;
/// Threads that it adds up to while requests wait for a disk. More than a disk's queue gains
/// nothing.
pub const WORKERS_MAX: usize = 32;
/// Requests of one session that change something and whose replies are kept until the client
/// settles them: all that fits into the queues of its connections.
pub const REPLIES_KEPT_MAX: usize = CONNECTIONS_MAX * CONNECTION_REQUESTS_MAX;
/// Requests of a session that are settled later than those around them: a wait for a lock, a flush
/// of a slow disk. As many as one connection may have at work; beyond, what comes after them is
/// kept too.
pub const STRAGGLERS_MAX: usize = CONNECTION_REQUESTS_MAX;
/// How many requests later one that is still unanswered counts as such.
pub const STRAGGLER_DISTANCE: u64 = 1024;
/// Bytes of those replies, with those to come: 3 KiB for each, where most have 300 bytes. A client
/// that asks for data along with its changes and settles nothing holds no more than this.
pub const REPLIES_KEPT_BYTES_MAX: usize = 32 << 20;
/// Requests for which one request waits at the server. With parts of 32 KiB, which writes have on a
/// slow line, they are twice what a line of a gigabit carries in 100 ms; who has more under way
/// asks when fewer are left.
pub const AFTER_REQUESTS_MAX: usize = 1024;
/// Requests of one session that wait for others: that many programs of a machine flush files at the
/// same moment. Who is refused waits for the answers himself, as long as one more round trip.
pub const AFTER_WAITS_MAX: usize = 64;
/// How long a request waits for others at most. They come together with it, or when a connection
/// that broke stands again. Below the time within which a mount answers, so that there is time to
/// ask in another way.
pub const AFTER_TIME_MAX: Duration = Duration::from_secs(15);
/// Bytes of each of the two files in which a server notes what must not run twice: about 40,000
/// steps until the other one is begun.
pub const JOURNAL_BYTES_MAX: u64 = 8 << 20;
/// Steps noted there that clients have not settled.
pub const JOURNAL_ENTRIES_MAX: usize = 16384;
/// How long such a note outlives the server's run: longer than any client goes on asking.
pub const JOURNAL_AGE_MAX: Duration = Duration::from_secs(3600);
/// Sessions of one credential: a quarter of all, so that nobody keeps the others out.
pub const SESSIONS_PER_CREDENTIAL_MAX: usize = SESSIONS_MAX / 4;
/// Sessions of all users with credentials of their own: half of all, so that no number of them
/// keeps machines out.
pub const SESSIONS_OF_USERS_MAX: usize = SESSIONS_MAX / 2;
/// Sessions that are left to administrators and to managers, so that whoever fills the rest can be
/// revoked.
pub const SESSIONS_FOR_ADMINISTRATION: usize = 32;
/// Credentials in one reply; more are asked for page by page. Each takes at most 350 bytes.
pub const CREDENTIALS_PER_REPLY_MAX: usize = 1024;
/// Credentials that one server remembers having issued, revoked ones included: a handshake looks
/// one up, a change writes the whole list.
pub const CREDENTIALS_MAX: usize = 65536;
/// Volumes of one server. With those below, a list of all volumes, sessions and background workers
/// fits one reply.
pub const VOLUMES_MAX: usize = 1024;
/// Bytes of the names and paths of all volumes of one server.
pub const VOLUMES_TEXT_BYTES_MAX: usize = 192 << 10;
/// Longest text about what a volume or background worker is doing in a list of all of them.
pub const SUMMARY_TEXT_BYTES_MAX: usize = 100;
/// Background workers of one server: one for each volume, and a few.
pub const BACKGROUND_WORKERS_MAX: usize = VOLUMES_MAX + 64;
/// Longest text in an answer to an administrator: a path and what is wrong with it.
pub const ADMIN_TEXT_BYTES_MAX: usize = 8192;
/// Time a socket may refuse to take a byte before its connection is closed.
pub const WRITE_STALL_TIME_MAX: Duration = Duration::from_secs(30);

/// How long a lease lives without word from the client. Shorter means less waiting for a client
/// that has vanished, longer means fewer heartbeats.
pub const LEASE_TIME: Duration = Duration::from_secs(6);
/// How often a client that holds leases is heard at least.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(1500);
/// When a client stops trusting its leases, counted from when it sent the latest request that was
/// answered: earlier than the server drops them by more than two clocks drift apart.
pub const LEASE_TRUST_TIME: Duration = Duration::from_millis(4500);
/// How often a client looks at an open file of which its kernel may have pages without a lease.
pub const UNLEASED_LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How many such files it looks at each time; more take turns.
pub const UNLEASED_LOOKS_MAX: usize = 1024;
/// How many of these looks are under way at once.
pub const UNLEASED_LOOKS_UNDER_WAY_MAX: usize = 64;
/// How long a client that is alive may take to obey a recall without a sign that it gets on with
/// it; then its session is ended. Below the time within which a mount answers, so that who waits
/// for the recall sees a late answer and not an error.
pub const RECALL_TIME_MAX: Duration = Duration::from_secs(20);
/// How long it may take in all, writing back what it answered ahead. All that a mount keeps of that
/// takes 107 s at 10 Mbit/s.
pub const RECALL_WRITING_TIME_MAX: Duration = Duration::from_secs(120);
/// As [`RECALL_TIME_MAX`], for a client of a credential of which one has not obeyed lately.
pub const RECALL_DISTRUSTED_TIME_MAX: Duration = Duration::from_secs(2);
/// How long the clients of a credential get no leases after one of them did not obey: whoever
/// began a new session instead would hold the others up again.
pub const DISTRUST_TIME: Duration = Duration::from_secs(300);
/// How long a client lets others wait at most because it makes durable what it wrote before them.
pub const RECALL_COMMIT_TIME_MAX: Duration = Duration::from_secs(10);
/// How long a client writes again what a server may have lost without any of it arriving: then it
/// lets others read. Shorter than a server waits for it, so that it keeps its session.
pub const WRITING_AGAIN_STILL_TIME_MAX: Duration = Duration::from_secs(15);
/// Items of one recall. More make several.
pub const RECALL_ITEMS_MAX: usize = 1024;
/// Leases of one session; beyond, the server grants none and the client asks each time.
pub const LEASES_PER_SESSION_MAX: usize = 1 << 20;
/// Locks of one session.
pub const LOCKS_PER_SESSION_MAX: usize = 65536;
/// Open files of one session.
pub const OPENS_PER_SESSION_MAX: usize = 65536;
/// After a restart, how long locks can only be reclaimed, not newly taken.
pub const LOCK_GRACE_TIME: Duration = Duration::from_secs(10);
/// Requests taken back that a server remembers because they may be about to wait for a lock. Each
/// is on its way from a worker to where it waits, and there are fewer workers than this.
pub const LOCKS_GIVEN_UP_MAX: usize = 4096;
/// How long a session without connections is kept, with its opens and locks.
pub const SESSION_IDLE_TIME_MAX: Duration = Duration::from_secs(90);
/// How long the locks of a session that has ended wait for a request of it that hangs at a device.
/// Longer than a disk that is only slow takes, or a snapshot of it.
pub const SESSION_REST_TIME_MAX: Duration = Duration::from_secs(60);

/// Descriptors that one export keeps for inodes that are asked about again and again. More would
/// crowd out the descriptors of open files (Linux lets a process have 524,288 or 1,048,576).
pub const EXPORT_DESCRIPTORS_MAX: usize = 16384;
/// Directories that one export keeps open between the pages of their listings.
pub const EXPORT_DIRECTORIES_MAX: usize = 256;
/// How long a directory stays open after its last page. A reader at 100 ms asks for the next page
/// within a second; a later one costs one more open and seek.
pub const EXPORT_DIRECTORY_IDLE_TIME_MAX: Duration = Duration::from_secs(10);
/// Files of an export of which it is remembered whether they have a rich ACL, and which: as many as
/// people work with at a time. Each takes about 200 bytes, all of them 25 MiB.
pub const ACL_CACHE_FILES_MAX: usize = 1 << 17;
/// Memory for distinct rich ACLs of an export: half for lists, half for views, and of each the half
/// that was used last stays for sure.
pub const ACL_CACHE_BYTES_MAX: usize = 64 << 20;
/// Files of an export of which it is counted how often a view of their POSIX ACL was made, so that
/// it is stored when that pays. Each takes about 200 bytes, all of them 25 MiB.
pub const ACL_VIEWS_COUNTED_MAX: usize = 1 << 17;
/// Views that wait to be stored. What finds no room is stored when it is asked for again.
pub const ACL_VIEWS_WAITING_MAX: usize = 4096;
/// Views that are stored before clients are told of them, all at once, and others have their turn.
pub const ACL_VIEWS_PER_BATCH_MAX: usize = 64;
/// For how long no view is stored where one found the file system full or read-only.
pub const ACL_VIEWS_REST_TIME: Duration = Duration::from_secs(60);
/// Lengths of ACLs for which it is measured what a view costs; twenty are.
pub const ACL_COST_POINTS_MAX: usize = 64;
/// Bytes of the text of a policy for views, and of the name of a file system.
pub const ACL_POLICY_BYTES_MAX: usize = 64;
/// Directories within each other that work on all files of an export goes down. Each keeps a page
/// of its entries; what lies deeper is left out and counted.
pub const ACL_WALK_DEPTH_MAX: usize = 1024;
/// Bytes of an entry of an ACL as text, or of a line that says what an edit was: the longest name
/// with all that stands beside it.
pub const ACL_TEXT_BYTES_MAX: usize = 1024;
/// Bytes of what is written down about edits of ACLs before it is put aside: some fifty thousand.
pub const ACL_AUDIT_BYTES_MAX: u64 = 8 << 20;
/// Lines about edits of ACLs in one reply: what fits a screen.
pub const ACL_AUDIT_LINES_PER_REPLY_MAX: usize = 32;
/// Bytes that one copy inside an export moves before it answers: at 1 GB/s a worker is busy for 16
/// ms.
pub const COPY_BYTES_MAX: u64 = 16 << 20;
/// Changes made behind the server's back that one report carries.
pub const WATCH_CHANGES_MAX: usize = 4096;

/// Default time within which a mount answers, with an error if need be.
pub const REQUEST_TIME_DEFAULT: Duration = Duration::from_secs(30);
/// The same while the server has been silent for as long as that: what the kernel lets wait for
/// each other, such as changes in one directory, must not wait for the times of all before it.
pub const REQUEST_TIME_IN_SILENCE: Duration = Duration::from_millis(100);
/// Memory that one mount may hold in read-ahead: twice what a line of 10 Gbit/s carries in 100 ms.
pub const CLIENT_BUFFER_BYTES_MAX: u64 = 256 << 20;
/// Memory that one mount may hold in data that is not on the server's disk. Half of it is asked to
/// be made durable while the other half is written; 64 MiB are half a second of a gigabit.
pub const CLIENT_UNWRITTEN_BYTES_MAX: u64 = 128 << 20;
/// Memory that the listings of one mount may hold, those of open directories and those that are on
/// their way: three and a half million names of usual length. A listing that goes on beyond, as
/// that of a server does which makes names up, ends with an error.
pub const LISTINGS_BYTES_MAX: u64 = 512 << 20;
/// Files of which a server notes who has changed them, after its machine has lost what was not
/// flushed. 262,144 take some 30 MB. Of further ones nothing is taken again.
pub const CHANGED_FILES_MAX: usize = 1 << 18;
/// Parts of parallel volumes' files of which a manager notes who has written them last; at least
/// half of that at any time. 131,072 take some 45 MB, if each is of another file. Clients make
/// durable within 5 s what they write. Of what is forgotten nothing is taken again.
pub const CHANGED_PARTS_MAX: usize = 1 << 17;
/// Recalls that a client obeys at once. Each waits for a round trip if files are open; 16,384 are a
/// hundred thousand a second at 100 ms. A server that sends more than are obeyed is left.
pub const RECALLS_UNDER_WAY_MAX: usize = 16384;
/// Requests under way that give leases back, of 4,096 each. What does not fit is forgotten without
/// a word; a recall of it is then obeyed by knowing nothing.
pub const LEASE_RETURNS_MAX: usize = 16;
/// Notices that come before there is a volume to hear them: it has a lease on its root and maybe on
/// the first entries by then.
pub const NOTICES_UNHEARD_MAX: usize = 16;
/// Commits in one fsync(2), if the server is another one each time: more restarts than a machine
/// makes within one.
pub const COMMIT_TRIES_MAX: usize = 16;
/// Buffers of a process (1 MiB each) that are kept for the next large payload from a socket: what
/// arrives in some milliseconds of a fast line. More would be idle memory.
pub const FRAME_BUFFERS_SPARE_MAX: usize = 16;
/// Buffers of one mount (1 MiB each) that are kept for the next large write. The kernel has that
/// many in the air on a fast local reader; more would be idle memory.
pub const KERNEL_BUFFERS_SPARE_MAX: usize = 16;
/// Read-ahead streams of one file.
pub const STREAMS_PER_FILE_MAX: usize = 16;
/// Claims of one reservation: a year of daily intervals on 44 devices.
pub const RESERVATION_CLAIMS_MAX: usize = 16384;
/// Devices of one reservation: 16 of each of 16 servers would be more than a file is striped over.
pub const RESERVE_SLICES_MAX: usize = 64;
/// Windows of one reservation: every day for ten years, or every hour for five months. With its
/// devices and lines it has at most [`RESERVATION_CLAIMS_MAX`] claims.
pub const RESERVE_COUNT_MAX: u32 = 3660;
/// Windows of one reservation with space: each is asked for at each of its stores.
pub const RESERVE_SPACE_COUNT_MAX: u32 = 400;
/// Times that stores are asked for the space of one reservation, each once for each window. Others
/// wait meanwhile, and each is a round trip with something made durable.
pub const RESERVE_CONFIRMATIONS_MAX: usize = 1024;
/// Longest name of a reservation: its identity in hexadecimal fits.
pub const RESERVE_NAME_BYTES_MAX: usize = 63;
/// Reservations in one reply. Each has at most a few KB, with all its slices.
pub const RESERVE_LIST_MAX: usize = 128;
/// Counter-offers in one reply: later, earlier, slower.
pub const RESERVE_OFFERS_MAX: usize = 3;
/// Users who may reserve by the administrator's list.
pub const RESERVE_USERS_MAX: usize = 1024;
/// Starts that are tried for one counter-offer. Each asks every device in question, so that whoever
/// asks keeps others waiting for some milliseconds at most.
pub const RESERVE_STARTS_MAX: usize = 2048;
/// Reservations that a manager keeps, those that are over for a while included: the goal of its
/// design. With its calendars each has about a kilobyte.
pub const RESERVE_RECORDS_MAX: usize = 1 << 20;
/// Reservations of one user that are not over, those that were cancelled included: each may be one
/// or two of the tickets that servers remember as revoked ([`REVOKED_TICKETS_MAX`]) until then.
pub const RESERVE_HOLDER_LIVE_MAX: usize = 512;
/// Windows of all reservations that are not over: a manager has each of them in its calendars, and
/// whoever takes its place plans all of them anew.
pub const RESERVE_WINDOWS_MAX: u64 = 1 << 23;
/// Reservations of one user that a manager keeps: a part of [`RESERVE_RECORDS_MAX`].
pub const RESERVE_HOLDER_RECORDS_MAX: usize = 1 << 14;
/// Requests that wait for a manager. It takes as many at a time as one transaction holds.
pub const RESERVE_QUEUE_MAX: usize = 4096;
/// Changes that a manager makes durable at once: one entry of the engine each.
pub const RESERVE_BATCH_MAX: usize = 100;
/// Reservations whose space is being asked for at the storage servers.
pub const RESERVE_ERRANDS_MAX: usize = 256;
/// Stores whose refusals a manager works around before it refuses a reservation itself: each try is
/// a round of questions to the stores of one layout.
pub const RESERVE_TRIES_MAX: usize = 32;
/// How long a reservation is remembered after everything of it is over, for its report.
pub const RESERVE_KEPT_TIME: Duration = Duration::from_secs(7 * 86_400);
/// How often a manager looks at the time, and at what has become of devices.
pub const RESERVE_TICK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a request to a manager may take: its queue, the stores, the engine.
pub const RESERVE_TIME_MAX: Duration = Duration::from_secs(25);
/// Devices of one server in one ticket.
pub const TICKET_SLICES_MAX: usize = 16;
/// How often a ticket can be split one after another: a job, its steps, their nodes, their ranks,
/// and as many again. Every verification goes through all of them.
pub const TICKET_LINKS_MAX: usize = 8;
/// Longest path that a ticket is restricted to: a few levels below the root of a volume.
pub const TICKET_PATH_BYTES_MAX: usize = 1024;
/// Largest ticket: nine times the largest terms (36 bytes, 16 slices of 32, a path) with their
/// names. It is shown once per connection.
pub const TICKET_BYTES_MAX: usize = 16 << 10;
/// Calendars asked for one counter-offer. One answers in about a microsecond, so who asks when
/// something fits has to wait some tens of milliseconds at most.
pub const RESERVATION_PROBES_MAX: usize = 65536;
/// Tickets that are open at one device at once: with 90 % of a 10 GB/s device reserved each would
/// have 2 MB/s. A decision among them takes microseconds.
pub const SCHEDULER_TICKETS_MAX: usize = 4096;
/// Those of them that may be open for another part of a ticket to be opened: a quarter is left for
/// whole ones, because whoever has one can split off as many as he likes.
pub const SCHEDULER_PARTS_MAX: usize = SCHEDULER_TICKETS_MAX / 4 * 3;
/// Users that one device knows at once: those with something waiting, and those who had more than
/// others a moment ago.
pub const SCHEDULER_USERS_MAX: usize = 65536;
/// Requests of one ticket, or of one user without a ticket, that wait for one device: all that a
/// connection may have at work, each in four pieces.
pub const SCHEDULER_QUEUE_REQUESTS_MAX: usize = 4 * CONNECTION_REQUESTS_MAX;
/// Requests without a ticket that wait for one device. Those with a ticket are not counted: no
/// flood takes their room.
pub const SCHEDULER_SHARED_REQUESTS_MAX: usize = 1 << 18;
/// For how long an idle ticket saves its share at most. What it saved is served before everybody
/// without a ticket, so a burst keeps these waiting for as long.
pub const SCHEDULER_BURST_TIME_MAX: Duration = Duration::from_secs(1);
/// How much of what a slow device owes to its tickets it makes good later. More would keep the
/// others waiting long after the device has recovered, for seconds that are missed anyway.
pub const SCHEDULER_CATCH_UP_TIME_MAX: Duration = Duration::from_secs(1);
/// Seconds of a ticket's record that are kept until they are taken: two minutes of a server that is
/// busy otherwise.
pub const SCHEDULER_RECORD_SECONDS_MAX: usize = 120;

/// Bytes that one device is given at once. Its own queue knows no reservations, so what waits there
/// delays whoever has one: 16 MiB are 16 ms at 1 GB/s, below the 20 ms that a reserved request may
/// take, and still sixteen requests of 1 MiB, more than any disk needs to be busy.
pub const DEVICE_IN_FLIGHT_BYTES_MAX: u64 = 16 << 20;
/// Requests that one device is given at once: small ones, of which more than a disk's own queue
/// holds (32 for SATA) gain nothing.
pub const DEVICE_REQUESTS_MAX: usize = 128;
/// Bytes of buffers that a process keeps for what it will read of its devices next: what one device
/// is given at once. More would be idle memory.
pub const DEVICE_BUFFERS_SPARE_BYTES_MAX: u64 = DEVICE_IN_FLIGHT_BYTES_MAX;
/// How long a device may take for one request. Linux gives a disk 30 s and tries again; who has not
/// answered after that is broken.
pub const DEVICE_TIME_MAX: Duration = Duration::from_secs(60);
/// How long opening a device waits for whoever has it to go away. A process that was killed is gone
/// before the kernel has taken apart what it had under way there, which keeps the device locked; on
/// a busy machine that takes a second. Who is told that a device is in use has waited that long.
pub const DEVICE_LOCK_TIME_MAX: Duration = Duration::from_secs(2);
/// Bytes of data that a store has handed to its device and not seen written; who writes more waits
/// before it takes part in anything. Half of what the device is given at once, so that nobody waits
/// for the device while others wait for the store.
pub const STORE_WRITES_BYTES_MAX: u64 = DEVICE_IN_FLIGHT_BYTES_MAX / 2;
/// Bytes of data that one transaction of a store writes; longer writes are several. 4 MiB take a
/// millisecond to sum up, during which other changes wait.
pub const STORE_WRITE_BYTES_MAX: usize = 4 << 20;
/// Spans of 256 KiB that a store looks at in one request for the next data or hole of an object:
/// who wants to know more asks again. Their records take about a millisecond.
pub const STORE_SEEK_SPANS_MAX: usize = 1024;
/// Requests for the next data or hole of one object, one after the other: at 256 MiB each, 16 TiB
/// that one store holds of one file. One that needs more looks at less than any store does.
pub const OBJECT_SEEKS_MAX: u32 = 65_536;
/// Bytes of an object that a client has given space, or makes a hole, in one request: with the
/// smallest allocation units, 4,096 of them.
pub const ALLOCATE_BYTES_MAX: u64 = 256 << 20;
/// Changes of pieces of one file that a client has under way for one request: more than any write
/// has; of an allocation, 16 GiB.
pub const PIECE_CHANGES_MAX: usize = 64;
/// How long what nobody waits for stays undurable: what a program that never commits may lose.
pub const STORE_BATCH_TIME_MAX: Duration = Duration::from_secs(1);
/// How long a commit waits for others to share it, at most; half a flush if that is shorter.
pub const STORE_GATHER_TIME_MAX: Duration = Duration::from_millis(2);
/// How often a store looks for what is over: nothing of it is readable before that, either.
pub const STORE_RECLAIM_INTERVAL: Duration = Duration::from_secs(1);
/// How long a store that gives back what is over keeps everybody else waiting at once, a step more
/// or less: then others have it for as long. A flush of a disk, which all wait for anyway, takes
/// longer.
pub const STORE_RECLAIM_TIME_MAX: Duration = Duration::from_millis(2);
/// How often a server notes how far its stores are: an older state of one is noticed unless it is
/// from within that time before a run ended out of order. A note is one small file made durable.
pub const STORES_NOTED_INTERVAL: Duration = Duration::from_secs(60);
/// How long a change or a commit of a store may take. It may have to wait for two checkpoints, each
/// with a few requests that take [`DEVICE_TIME_MAX`].
pub const STORE_WAIT_TIME_MAX: Duration = Duration::from_secs(600);
/// How long measuring a new device may take: an administrator waits for it.
pub const CALIBRATION_TIME_MAX: Duration = Duration::from_secs(60);

/// Stores of one server: as many disks as a large chassis has. Each has a store's memory and some
/// threads.
pub const SERVER_STORES_MAX: usize = 64;
/// Stores of one server that were given up: each is remembered for good.
pub const LOST_STORES_MAX: usize = 1024;
/// Findings of a scrub that go into the log, one by one: enough to see what kind of damage it is.
pub const SCRUB_FINDINGS_LOGGED_MAX: usize = 100;
/// Storage servers of one cluster. A list of all of them fits one reply.
pub const SERVERS_MAX: usize = 512;
/// Managers of one cluster: one leads, and the others wait. More than a few wait for nothing.
pub const MANAGERS_MAX: usize = 16;
/// How long one of several managers may be silent before another one is looked for: while it is
/// stopped its seat goes to another, and nothing else says so. Longer than an answer takes that
/// waits for a member of etcd to be replaced.
pub const MANAGER_SILENCE_MAX: Duration = Duration::from_secs(9);
/// Longest address of a cluster's metadata: the endpoints of a dozen members.
pub const META_ADDRESS_BYTES_MAX: usize = 4096;
/// Addresses under which one storage server is reached: one for each network that it is in.
pub const SERVER_ADDRESSES_MAX: usize = 4;
/// Longest HOST:PORT of a server. Names of hosts have up to 253 bytes.
pub const SERVER_ADDRESS_BYTES_MAX: usize = 260;
/// What was measured of a device, as its store keeps it: a page has more than enough room.
pub const CAPABILITY_BYTES_MAX: usize = 4096;
/// How often a storage server makes itself known to the manager, and the manager asks it how it is.
/// Also how long a credential that was revoked is still taken by storage servers.
pub const SERVER_HEARTBEAT_INTERVAL: Duration = Duration::from_secs(2);
/// How long a storage server may take to say how it is before it counts as away.
pub const SERVER_LOOK_TIME_MAX: Duration = Duration::from_secs(4);
/// How long one question to another server of the cluster may take, its disk's flush included. One
/// that has not answered by then is not there.
pub const SERVER_ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

/// Keys under which a server believes tickets: the present one, and those before it whose tickets
/// are not over.
pub const TICKET_KEYS_MAX: usize = 8;
/// Single tickets that a server remembers as revoked, until their windows are over. A manager keeps
/// each user far below, with [`RESERVE_HOLDER_LIVE_MAX`].
pub const REVOKED_TICKETS_MAX: usize = 4096;
/// How wrong the clocks of a cluster may be: a ticket is good for so long before its start and
/// after its end. Disciplined clocks are a hundred times better; a machine without NTP drifts by
/// less in a day.
pub const TICKET_CLOCK_ERROR_MAX: Duration = Duration::from_secs(2);
/// Seconds of a ticket's record that a server keeps one by one: managers fetch them every few
/// minutes. 900 of them take 40 KB; with all tickets of one device that is 150 MB.
pub const TICKET_RECORD_SECONDS_MAX: usize = 900;
/// Seconds of a record in one reply: all of them.
pub const TICKET_RECORD_PAGE_MAX: usize = TICKET_RECORD_SECONDS_MAX;
/// How often a server takes what is over from a scheduler, which keeps
/// [`SCHEDULER_RECORD_SECONDS_MAX`].
pub const TICKET_COLLECT_INTERVAL: Duration = Duration::from_secs(5);
/// How long a ticket's record can be asked for after its end.
pub const TICKET_KEPT_TIME: Duration = Duration::from_secs(600);
/// Tickets that are not open any more whose records one device keeps. With those of open ones it is
/// 20 MB more.
pub const PAST_TICKETS_MAX: usize = SCHEDULER_TICKETS_MAX;
/// Those of them that keep all their seconds: more are not asked for before they are accounted for.
pub const PAST_FULL_TICKETS_MAX: usize = 256;
/// Seconds that the others keep.
pub const PAST_SECONDS_MAX: usize = 60;
/// Records of tickets that a server has on its disk.
pub const NOTED_RECORDS_MAX: usize = 16_384;
/// Seconds that these have one by one: so many that a second's writing of them is nothing to a
/// disk. A server with 36 tickets in force has all of them there.
pub const NOTED_SECONDS_MAX: usize = 32_768;
/// The file of them: each with the longest lineage, and the seconds.
pub const NOTED_BYTES_MAX: usize = 8 << 20;
/// Tickets that one session has shown: those of a job's ranks on one machine.
pub const SESSION_TICKETS_MAX: usize = 256;
/// How long a store's own I/O waits for its turn at most. With its floor it waits for
/// milliseconds; who shares a device must not be able to stop a store for good.
pub const GATE_TIME_MAX: Duration = Duration::from_secs(1);
/// Object requests of one connection and class at work; more are refused. With both classes there
/// is room left below [`CONNECTION_REQUESTS_MAX`] to say so.
pub const OBJECT_REQUESTS_MAX: usize = 256;
/// Bytes of one connection and class that requests bring and replies may have, from the request's
/// arrival until the socket has its reply: 32 of the largest, several times what keeps a device
/// busy.
pub const OBJECT_CONNECTION_BYTES_MAX: usize = 32 << 20;
/// The same over all connections of a server: each class has its own, so that no flood of others
/// takes a reserved request's memory. Of it no reservation and no credential has more than is left.
pub const OBJECT_CLASS_BYTES_MAX: usize = 512 << 20;
/// What a credential of those who administer has of it in any case: a manager's confirmations and
/// releases of space take less than a kilobyte each, and are not to wait for machines.
pub const OBJECT_ADMIN_BYTES_ALWAYS: usize = 4 << 20;
/// What any other credential or reservation has of it, however many take all that they can: a few
/// of the largest requests.
pub const OBJECT_OWNER_BYTES_ALWAYS: usize = 4 << 20;
/// By how much a class is exceeded for that: 64 of them.
pub const OBJECT_CLASS_BYTES_BEYOND: usize = 64 * OBJECT_OWNER_BYTES_ALWAYS;
/// How often a client asks again that a busy server has refused: with growing pauses some seconds.
pub const OBJECT_BUSY_TRIES_MAX: u32 = 32;
/// Objects in one reply; each takes at most 53 bytes.
pub const OBJECTS_PER_PAGE_MAX: usize = 4096;
/// Attributes of an object, and the bytes of their names and contents: as a store keeps them.
pub const OBJECT_ATTRIBUTES_MAX: usize = 64;
/// See [`OBJECT_ATTRIBUTES_MAX`].
pub const OBJECT_ATTRIBUTE_NAME_BYTES_MAX: usize = 64;
/// See [`OBJECT_ATTRIBUTES_MAX`].
pub const OBJECT_ATTRIBUTE_BYTES_MAX: usize = 1024;
/// Longest text about a store in a list of them: its path, or why it takes no changes.
pub const STORE_TEXT_BYTES_MAX: usize = 1024;

/// How long making and measuring a server's first store takes at most, apart from writing it: who
/// starts a server waits for it.
pub const QUICK_CALIBRATION_TIME_MAX: Duration = Duration::from_secs(3);

/// Longest key of a metadata engine: a path component with the identities before it is below 300
/// bytes; longer ones are stored with every entry of a tree and read on every way down.
pub const META_KEY_BYTES_MAX: usize = 1024;
/// Longest value: the largest extended attribute with the record around it.
pub const META_VALUE_BYTES_MAX: usize = 128 << 10;
/// Keys and values of one transaction. etcd takes requests of 1.5 MiB as Debian ships it.
pub const META_TRANSACTION_BYTES_MAX: usize = 1 << 20;
/// Conditions of one transaction, and as many changes. etcd takes 128 of each as Debian ships it;
/// two are the engine's own.
pub const META_OPERATIONS_MAX: usize = 120;
/// etcd's own bound on them.
pub const META_ETCD_OPERATIONS_MAX: usize = 128;
/// Entries that one range deletion takes away. Everybody waits for the transaction that does it.
pub const META_RANGE_DELETE_MAX: usize = 4096;
/// Entries in one page of a range.
pub const META_PAGE_ENTRIES_MAX: usize = 4096;
/// Bytes in one page: what its last entry brings may be more. A page of 4,096 entries of 500 bytes
/// is twice that much and comes in two.
pub const META_PAGE_BYTES_MAX: usize = 1 << 20;
/// Pages that are read at once; each has a thread for itself.
pub const META_READS_MAX: usize = 64;
/// Old states of an embedded engine that are kept for readers who have read one page.
pub const META_SNAPSHOTS_MAX: usize = 256;
/// How long such a state is kept after its last page: while it is, nothing that it needs is free.
pub const META_SNAPSHOT_TIME_MAX: Duration = Duration::from_secs(30);
/// Transactions that wait for their turn; who comes then waits before the queue.
pub const META_QUEUE_MAX: usize = 4096;
/// Bytes of these transactions.
pub const META_QUEUE_BYTES_MAX: usize = 64 << 20;
/// Transactions that one durable commit carries. At 10 us each the group takes 10 ms, many times
/// what its flush does.
pub const META_GROUP_MAX: usize = 1024;
/// Bytes of these transactions, the last one not counted. A group is one record of the change log.
pub const META_GROUP_BYTES_MAX: usize = 4 << 20;
/// How long a group waits for others to share it, at most; half a flush if that is shorter.
pub const META_GATHER_TIME_MAX: Duration = Duration::from_millis(2);
/// How long a transaction or a read may take, retries included; then its outcome is unknown.
pub const META_TIME_MAX: Duration = Duration::from_secs(10);
/// How long one request to a cluster may take before another member is asked. Longer than an
/// election, which takes one to two seconds.
pub const META_REQUEST_TIME_MAX: Duration = Duration::from_secs(3);
/// Transactions of unknown outcome that one engine remembers until somebody asks.
pub const META_UNKNOWN_MAX: usize = 1024;
/// Bytes of changes that an embedded engine keeps for watches: who is behind by more reads anew.
pub const META_LOG_BYTES_MAX: u64 = 64 << 20;
/// Those that are also kept in memory, for watches that keep up.
pub const META_LOG_MEMORY_BYTES_MAX: usize = 8 << 20;
/// Changes of a cluster that arrive in one message; a watch that is behind by more reads anew.
pub const META_WATCH_MESSAGE_BYTES_MAX: usize = 64 << 20;
/// Memory in which an embedded engine keeps pages of its file.
pub const META_CACHE_BYTES: usize = 128 << 20;
/// Transactions that one engine has under way in a cluster; each has a slot there.
pub const META_SLOTS_MAX: usize = 512;
/// Groups of transactions under way in a cluster. It orders them all anyway: a few keep it busy,
/// and the fewer there are the larger they become.
pub const META_ETCD_GROUPS_MAX: usize = 3;
/// Transactions of one such group: what is left of the operations for the largest of them.
pub const META_ETCD_GROUP_MAX: usize = 64;
/// Bytes of one such group, the last transaction not counted.
pub const META_ETCD_GROUP_BYTES_MAX: usize = 256 << 10;
/// How long the slots of an engine outlive it. Longer than any of its transactions is unknown.
pub const META_SLOT_TIME: Duration = Duration::from_secs(600);
/// How long a leader keeps its seat without a word. Shorter means less waiting for the next one,
/// longer means fewer renewals and no change of leader because a disk was slow.
pub const META_SEAT_TIME: Duration = Duration::from_secs(6);
/// How often a seat is renewed.
pub const META_SEAT_RENEWAL_INTERVAL: Duration = Duration::from_millis(1500);
/// When a leader stops trusting that it is one: earlier than its seat is given to another.
pub const META_SEAT_TRUST_TIME: Duration = Duration::from_millis(4500);
/// How often somebody who waits for a seat asks for it.
pub const META_CAMPAIGN_INTERVAL: Duration = Duration::from_millis(500);
/// How much history a cluster keeps for watches and pages: this long, and up to twice.
pub const META_HISTORY_TIME: Duration = Duration::from_secs(300);

/// Inodes and names that one namespace keeps in memory: some 200 MB.
pub const NAMESPACE_CACHE_ENTRIES_MAX: usize = 1 << 19;
/// Bytes of changes that go into one transaction, the last change not counted. With the largest
/// change, a full set of extended attributes, it stays below the engine's bound.
pub const NAMESPACE_BATCH_BYTES_MAX: usize = 256 << 10;
/// Transactions of a namespace that wait or are under way; who changes something then waits. At 50
/// changes each they are a second of a quick disk's work.
pub const NAMESPACE_BATCHES_MAX: usize = 256;
/// Bytes of these transactions.
pub const NAMESPACE_PENDING_BYTES_MAX: usize = 32 << 20;
/// Transactions of one namespace that an embedded engine has at once: they share a flush.
pub const NAMESPACE_IN_FLIGHT_MAX: usize = 32;
/// How long an operation of a namespace, or the wait until it is durable, may take: the engine's
/// time, the time to find out what became of a transaction, and to read anew.
pub const NAMESPACE_TIME_MAX: Duration = Duration::from_secs(25);
/// Requests whose outcomes one namespace remembers: those of 28 clients that settle nothing. Each
/// takes some 100 bytes.
pub const NAMESPACE_OUTCOMES_MAX: usize = 1 << 18;
/// Names of one inode, as in ext4.
pub const NAMESPACE_LINKS_MAX: u32 = 65000;
/// Largest file: 1 EiB. Offsets are below 2^63 anyway; what is left are sums that do not overflow.
pub const NAMESPACE_FILE_BYTES_MAX: u64 = 1 << 60;
/// Holes of one file that its record tells, for the number of its blocks: some 600 bytes, which are
/// written with each change of the file.
pub const NAMESPACE_HOLES_MAX: usize = 64;
/// Appends to one file whose bytes are on their way: more than the largest client has in flight.
/// The oldest beyond that is given up, and whoever is still at it is told.
pub const NAMESPACE_PLACES_MAX: usize = 64;
/// How long whoever makes a file longer waits for appends that were given their places before: as
/// long as for a machine that has vanished.
pub const APPEND_WAIT_TIME_MAX: Duration = LEASE_TIME;
/// Parts that are left of an append's place after others have written there; of more, nobody could
/// say what the append is any more, and it is given up.
pub const PLACE_PARTS_MAX: usize = 8;
/// Runs of appended bytes of one file that are told apart. Of more, those that are nearest to each
/// other count as one: that costs a write between them a second time, and nothing else.
pub const NAMESPACE_APPENDED_MAX: usize = 64;
/// Names and values of the extended attributes of one inode, which are one record.
pub const NAMESPACE_XATTRS_BYTES_MAX: usize = 96 << 10;
/// Entries of one ACL; ext4 has room for some 500. It lies in the inode.
pub const NAMESPACE_ACL_ENTRIES_MAX: usize = 512;
/// Bytes of a rich ACL, with what was before it, that lies in the inode: some thirty entries.
/// Larger ones lie in a record of their own, because every listing reads the inodes.
pub const NAMESPACE_RICH_INLINE_BYTES_MAX: usize = 256;
/// Edits of rich ACLs that one namespace says in words; the oldest beyond that are only counted.
/// Each has up to [`ACL_TEXT_BYTES_MAX`].
pub const NAMESPACE_EDITS_MAX: u64 = 16384;
/// Columns of one file. Each is 48 bytes of a layout, and a wider file has more bandwidth than any
/// client.
pub const LAYOUT_COLUMNS_MAX: usize = 256;
/// Layouts of files that one client remembers, each of them some 200 bytes.
pub const CLIENT_LAYOUTS_MAX: usize = 1 << 16;
/// Stores of one volume.
pub const NAMESPACE_TARGETS_MAX: usize = 16384;

/// Longest time for which a join string can be used, in seconds.
pub const JOIN_SECONDS_MAX: u32 = 7 * 86_400;

const _: () = assert!(LEASE_TRUST_TIME.as_millis() + 1000 < LEASE_TIME.as_millis());
const _: () = assert!(STORE_WRITE_BYTES_MAX as u64 <= STORE_WRITES_BYTES_MAX);
const _: () = assert!(DEVICE_TIME_MAX.as_secs() * 8 < STORE_WAIT_TIME_MAX.as_secs());
const _: () = assert!(HEARTBEAT_INTERVAL.as_millis() * 2 < LEASE_TRUST_TIME.as_millis());
const _: () = assert!(RECALL_COMMIT_TIME_MAX.as_millis() < RECALL_TIME_MAX.as_millis());
const _: () = assert!(RECALL_TIME_MAX.as_millis() < REQUEST_TIME_DEFAULT.as_millis());
const _: () = assert!(WRITING_AGAIN_STILL_TIME_MAX.as_millis() < RECALL_TIME_MAX.as_millis());
const _: () = assert!(RECALL_TIME_MAX.as_millis() < RECALL_WRITING_TIME_MAX.as_millis());
const _: () = assert!(CLIENT_UNWRITTEN_BYTES_MAX / 1_250_000 < RECALL_WRITING_TIME_MAX.as_secs());
const _: () = assert!(2 * AFTER_TIME_MAX.as_millis() <= REQUEST_TIME_DEFAULT.as_millis());
const _: () = assert!(AFTER_REQUESTS_MAX * 10 < FRAME_BODY_BYTES_MAX);
const _: () =
    assert!(DISK_INDEX_CHUNKS_MAX as u64 * (DISK_CHUNK_BYTES_MAX as u64) < DISK_IMAGE_BYTES_MAX);
const _: () = assert!(NBD_REQUEST_BYTES_MAX <= NBD_CONNECTION_BYTES_MAX);
const _: () = assert!(2 * NBD_TEXT_BYTES_MAX <= NBD_OPTION_BYTES_MAX);
const _: () = assert!(DISK_PACK_CHUNKS_MAX == 1 << 16);
const _: () = assert!(DISK_TOUCHES_MAX as u64 * 29 < DISK_PROFILE_FILE_BYTES_MAX);
const _: () = assert!(DISK_PACK_FRONT_BYTES_MAX < DISK_PACK_WHOLE_BYTES_MAX);
const _: () = assert!(DATA_BYTES_MAX as usize <= FRAME_PAYLOAD_BYTES_MAX);
const _: () = assert!(DATA_BYTES_MAX as u64 <= VERIFY_RECORD_BYTES_MAX);
const _: () = assert!(VERIFY_FOUND_BYTES_MAX < VERIFY_MESSAGE_BYTES_MAX as u64);
const _: () = assert!(VERIFY_SPEED_SAID_BYTES_MAX * 2 < VERIFY_MESSAGE_BYTES_MAX as u64);
const _: () = assert!(XATTR_BYTES_MAX < FRAME_BODY_BYTES_MAX);
const _: () = assert!(OBJECTS_PER_PAGE_MAX * 53 < FRAME_BODY_BYTES_MAX);
const _: () = assert!(2 * OBJECT_REQUESTS_MAX < CONNECTION_REQUESTS_MAX);
const _: () = assert!(TICKET_COLLECT_INTERVAL.as_secs() * 2 < SCHEDULER_RECORD_SECONDS_MAX as u64);
const _: () = assert!(2 * SERVER_STORES_MAX * (STORE_TEXT_BYTES_MAX + 200) < FRAME_BODY_BYTES_MAX);
const _: () = assert!(
    SERVERS_MAX * (255 + SERVER_ADDRESSES_MAX * (SERVER_ADDRESS_BYTES_MAX + 2) + 80)
        < FRAME_BODY_BYTES_MAX
);
const _: () = assert!(
    SERVER_STORES_MAX * (CAPABILITY_BYTES_MAX + 2 * STORE_TEXT_BYTES_MAX + 300)
        < FRAME_BODY_BYTES_MAX
);
const _: () = assert!(REVOKED_TICKETS_MAX * 26 < FRAME_BODY_BYTES_MAX);
const _: () = assert!(TICKET_RECORD_PAGE_MAX * 40 < FRAME_BODY_BYTES_MAX);
const _: () = assert!(
    OBJECT_ATTRIBUTES_MAX * (OBJECT_ATTRIBUTE_NAME_BYTES_MAX + OBJECT_ATTRIBUTE_BYTES_MAX + 8)
        < FRAME_BODY_BYTES_MAX
);
const _: () = assert!(CREDENTIALS_PER_REPLY_MAX * 350 < FRAME_BODY_BYTES_MAX);
// A session has two texts of 255 and 64 bytes and ten numbers; a volume an identity and the length
// of its texts; a worker the name of its volume.
const _: () = assert!(
    SESSIONS_MAX * (255 + 64 + 90)
        + VOLUMES_TEXT_BYTES_MAX
        + VOLUMES_MAX * (30 + SUMMARY_TEXT_BYTES_MAX)
        + BACKGROUND_WORKERS_MAX * (90 + SUMMARY_TEXT_BYTES_MAX)
        < FRAME_BODY_BYTES_MAX
);
const _: () = assert!(GROUPS_MAX * 5 < FRAME_BODY_BYTES_MAX / 2);
const _: () = assert!(
    160 + (TICKET_LINKS_MAX + 1) * (16 + 36 + TICKET_SLICES_MAX * 32 + TICKET_PATH_BYTES_MAX)
        <= TICKET_BYTES_MAX
);
// Each claim is one or two stretches, and every stretch is asked about at least once.
const _: () = assert!(RESERVE_LIST_MAX * (1024 + RESERVE_SLICES_MAX * 64) < FRAME_BODY_BYTES_MAX);
const _: () = assert!(RESERVE_BATCH_MAX < META_OPERATIONS_MAX);
const _: () = assert!(2 * RESERVE_HOLDER_LIVE_MAX < REVOKED_TICKETS_MAX);
const _: () = assert!(RESERVE_HOLDER_LIVE_MAX < RESERVE_HOLDER_RECORDS_MAX);
const _: () = assert!(RESERVE_HOLDER_RECORDS_MAX < RESERVE_RECORDS_MAX);
const _: () = assert!(RESERVE_WINDOWS_MAX >= RESERVE_RECORDS_MAX as u64);
const _: () = assert!(RESERVE_SPACE_COUNT_MAX as usize <= RESERVE_CONFIRMATIONS_MAX);
const _: () = assert!(RESERVE_TIME_MAX.as_secs() < REQUEST_TIME_DEFAULT.as_secs());
const _: () = assert!(2 * RESERVATION_CLAIMS_MAX < RESERVATION_PROBES_MAX);
const _: () = assert!(XATTR_BYTES_MAX < META_VALUE_BYTES_MAX);
const _: () = assert!(META_KEY_BYTES_MAX + META_VALUE_BYTES_MAX < META_TRANSACTION_BYTES_MAX);
const _: () = assert!(META_OPERATIONS_MAX + 2 < META_ETCD_OPERATIONS_MAX);
const _: () =
    assert!(META_ETCD_GROUP_BYTES_MAX + META_TRANSACTION_BYTES_MAX <= (3 << 20) / 2 - (128 << 10));
const _: () = assert!(META_TRANSACTION_BYTES_MAX <= META_QUEUE_BYTES_MAX);
// A key that is written twice counts twice.
const _: () = assert!(
    NAMESPACE_BATCH_BYTES_MAX + META_VALUE_BYTES_MAX + (64 << 10) < META_TRANSACTION_BYTES_MAX
);
const _: () = assert!(NAMESPACE_XATTRS_BYTES_MAX + (1 << 10) < META_VALUE_BYTES_MAX);
const _: () = assert!(XATTR_BYTES_MAX + NAME_BYTES_MAX < NAMESPACE_XATTRS_BYTES_MAX);
// The largest rich ACL, and two POSIX ACLs from before it, of eight bytes an entry at most.
const _: () = assert!(
    XATTR_BYTES_MAX + 16 * NAMESPACE_ACL_ENTRIES_MAX + (1 << 10) < NAMESPACE_XATTRS_BYTES_MAX
);
const _: () = assert!(NAMESPACE_TIME_MAX.as_secs() > 2 * META_TIME_MAX.as_secs());
const _: () = assert!(NAMESPACE_TIME_MAX.as_secs() < REQUEST_TIME_DEFAULT.as_secs());
const _: () = assert!(NAMESPACE_IN_FLIGHT_MAX < META_QUEUE_MAX);
const _: () = assert!(META_TIME_MAX.as_secs() * 2 < META_SLOT_TIME.as_secs());
const _: () = assert!(META_REQUEST_TIME_MAX.as_millis() * 2 < META_TIME_MAX.as_millis());
const _: () = assert!(MANAGER_SILENCE_MAX.as_millis() > META_SEAT_TIME.as_millis());
const _: () = assert!(META_SEAT_TRUST_TIME.as_millis() + 1000 < META_SEAT_TIME.as_millis());
const _: () =
    assert!(META_SEAT_RENEWAL_INTERVAL.as_millis() * 2 < META_SEAT_TRUST_TIME.as_millis());
