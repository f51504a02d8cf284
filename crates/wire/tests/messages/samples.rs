//! One value of every variant of every message, for the golden bytes and as a start for damage.
//!
//! [`names!`] lists the variants of an enum in a `match` without a rest: a new variant does not
//! compile until it is listed, and is not accepted until there is a sample.

use crate::acl_samples::attributes;
use crate::part;
use base::{
    AttributeChange, BootId, ClusterId, Extent, FileKind, FileSystemStat, FsError, Handle,
    LockOwner, Name, ObjectId, OpenId, Principal, RequestId, ServerId, SessionId, SetTime, StoreId,
    Timestamp, VolumeId, WriteVerifier,
};
use serde::Serialize;
use std::collections::BTreeSet;
use wire::message::*;
use wire::version::WireVersion;

/// A sample: its name, `Type::Variant`, and its bytes.
pub(crate) type Sample = (String, Vec<u8>);

macro_rules! names {
    ($samples:expr, $type:ident: $($variant:ident)*) => {{
        fn name(value: &$type) -> &'static str {
            match value {
                $(
                    $type::$variant { .. } => {
                        concat!(stringify!($type), "::", stringify!($variant))
                    }
                )*
            }
        }
        let all = [$(concat!(stringify!($type), "::", stringify!($variant)),)*];
        let samples: Vec<$type> = $samples;
        let named: BTreeSet<_> = samples.iter().map(name).collect();
        let missing: Vec<_> = all.iter().filter(|name| !named.contains(*name)).collect();
        assert!(missing.is_empty(), "without a sample: {missing:?}");
        encoded(samples.iter().map(|value| (name(value), value)))
    }};
}

/// The variants of an enum without fields, all of them.
macro_rules! words {
    ($type:ident: $($variant:ident)*) => {
        names!(vec![$($type::$variant,)*], $type: $($variant)*)
    };
}

pub(crate) fn encoded<'a, T: Serialize + 'a>(
    named: impl Iterator<Item = (&'a str, &'a T)>,
) -> Vec<Sample> {
    named
        .map(|(name, value)| (name.to_owned(), part(value)))
        .collect()
}

fn one<T: Serialize>(name: &str, value: &T) -> Vec<Sample> {
    encoded(std::iter::once((name, value)))
}

fn handle() -> Handle {
    Handle::new(&[0xa1, 0xa2, 0xa3]).unwrap()
}

fn target() -> Target {
    Target::Handle(handle())
}

fn found() -> Target {
    Target::Result(2)
}

fn file() -> FileRef {
    FileRef {
        target: target(),
        open: Some(OpenId(300)),
    }
}

fn name() -> Name {
    Name::new("na\u{efff}me").unwrap()
}

fn entry() -> Entry {
    Entry {
        handle: handle(),
        attributes: attributes(),
        lease: Lease::Read,
    }
}

fn change() -> AttributeChange {
    AttributeChange {
        mode: Some(0o640),
        uid: None,
        gid: Some(7),
        size: Some(1 << 40),
        accessed: Some(SetTime::Now),
        modified: Some(SetTime::To(Timestamp {
            seconds: 1,
            nanos: 2,
        })),
    }
}

fn lock() -> LockRange {
    LockRange {
        kind: LockKind::Posix,
        mode: LockMode::Exclusive,
        extent: Extent::new(10, 20),
        owner: LockOwner(u64::MAX),
        pid: 4711,
    }
}

pub(crate) fn steps() -> Vec<Sample> {
    let mut samples = look_steps();
    samples.extend(data_steps());
    samples.extend(name_steps());
    samples.extend(other_steps());
    samples.extend(super::acl_samples::steps(target(), found()));
    samples.extend(super::place_samples::steps(file));
    names!(samples, Step:
        Attach Lookup Attributes SetAttributes ReadLink Open Create CreateFile Close Read Write
        Commit Allocate Seek CopyRange MakeDirectory MakeNode MakeSymlink Link Remove
        RemoveDirectory Rename ReadDirectory Fetch StatFileSystem GetXattr SetXattr ListXattrs
        RemoveXattr SyncDirectory SyncFileSystem Lock TestLock ReleaseLocks Layout
        Wrote Extend After Access Explain Place PlaceLeft Stored
        GivePlaceUp
    )
}

fn look_steps() -> Vec<Step> {
    vec![
        Step::Attach {
            volume: "lab".into(),
        },
        Step::Lookup {
            parent: found(),
            name: name(),
            inline_bytes_max: 65536,
        },
        Step::Attributes { target: target() },
        Step::SetAttributes {
            target: target(),
            change: change(),
            open: Some(OpenId(1)),
        },
        Step::ReadLink { target: found() },
        Step::Open {
            target: target(),
            open: OpenId(2),
            access: Access::ReadWrite,
            truncate: true,
        },
        Step::ReadDirectory {
            target: target(),
            cookie: 77,
            entries_max: 4096,
        },
        Step::Fetch {
            handles: vec![handle(), handle()],
            bytes_max: 9,
        },
        Step::StatFileSystem { target: target() },
    ]
}

fn data_steps() -> Vec<Step> {
    vec![
        Step::Close { open: OpenId(3) },
        Step::Read {
            file: file(),
            offset: 1 << 33,
            bytes: 1 << 20,
        },
        Step::Write {
            file: file(),
            at: WriteAt::Offset(12),
            bytes: 13,
        },
        Step::Write {
            file: FileRef {
                target: found(),
                open: None,
            },
            at: WriteAt::End,
            bytes: 0,
        },
        Step::Commit {
            file: file(),
            data_only: true,
        },
        Step::Allocate {
            file: file(),
            mode: AllocateMode::ZeroRange,
            extent: Extent::new(0, 4096),
        },
        Step::Seek {
            file: file(),
            offset: 5,
            what: SeekWhat::Hole,
        },
        Step::CopyRange {
            source: file(),
            source_offset: 1,
            target: file(),
            target_offset: 2,
            bytes: 3,
        },
        Step::SyncDirectory { target: target() },
        Step::SyncFileSystem { target: target() },
    ]
}

fn name_steps() -> Vec<Step> {
    vec![
        Step::Create {
            parent: target(),
            name: name(),
            mode: 0o666,
            umask: 0o22,
            exclusive: true,
            open: Some((OpenId(4), Access::Write, false)),
        },
        Step::CreateFile {
            parent: target(),
            name: name(),
            mode: 0o600,
            umask: 0,
            change: AttributeChange::default(),
            bytes: 8192,
        },
        Step::MakeDirectory {
            parent: target(),
            name: name(),
            mode: 0o777,
            umask: 0o27,
        },
        Step::MakeNode {
            parent: target(),
            name: name(),
            kind: FileKind::Fifo,
            mode: 0o600,
            umask: 0,
            device: 0x0103,
        },
        Step::MakeSymlink {
            parent: target(),
            name: name(),
            link_target: b"../x".to_vec(),
        },
        Step::Link {
            target: found(),
            parent: target(),
            name: name(),
        },
        Step::Remove {
            parent: target(),
            name: name(),
            file: Some(handle()),
        },
        Step::RemoveDirectory {
            parent: target(),
            name: name(),
        },
        Step::Rename {
            parent: target(),
            name: name(),
            to_parent: found(),
            to_name: name(),
            mode: RenameMode::Exchange,
        },
    ]
}

fn other_steps() -> Vec<Step> {
    let attribute = b"user.k".to_vec();
    vec![
        Step::GetXattr {
            target: target(),
            name: attribute.clone(),
        },
        Step::SetXattr {
            target: target(),
            name: attribute.clone(),
            value: b"v".to_vec(),
            create: Some(true),
        },
        Step::ListXattrs { target: target() },
        Step::RemoveXattr {
            target: target(),
            name: attribute,
        },
        Step::Lock {
            target: target(),
            lock: lock(),
            wait: true,
            reclaim: false,
        },
        Step::TestLock {
            target: target(),
            lock: lock(),
        },
        Step::ReleaseLocks {
            target: target(),
            owner: LockOwner(9),
            kind: LockKind::Flock,
        },
        Step::Layout {
            file: file(),
            purpose: LayoutPurpose::Write,
        },
        Step::Wrote {
            file: file(),
            generation: 300,
            end: 1 << 40,
            extent: Extent::new(300, 400),
            is_hole: true,
        },
        Step::Extend {
            file: file(),
            bytes: 4096,
        },
        Step::After {
            requests: vec![RequestId(127), RequestId(128), RequestId(1 << 33)],
        },
    ]
}

pub(crate) fn step_replies() -> Vec<Sample> {
    let mut samples = attribute_replies();
    samples.extend(data_replies());
    samples.extend(super::acl_samples::replies());
    samples.extend(super::place_samples::replies(attributes()));
    names!(samples, StepReply:
        Done Attached Found Attributes LinkTarget Created Data Written Position Removed Renamed
        Directory Contents FileSystem Xattr XattrNames Lock Layout Access Explained Placed
        PlaceLeft
    )
}

fn attribute_replies() -> Vec<StepReply> {
    vec![
        StepReply::Done,
        StepReply::Attached {
            volume: VolumeId([3; 16]),
            root: entry(),
            read_only: true,
            parallel: false,
        },
        StepReply::Found {
            entry: Some(entry()),
            parent_lease: Lease::Exclusive,
            inline_bytes: Some(5),
        },
        StepReply::Attributes {
            attributes: attributes(),
            lease: Lease::None,
        },
        StepReply::LinkTarget(b"a/b".to_vec()),
        StepReply::Created {
            entry: entry(),
            new: true,
            parent: attributes(),
            parent_lease: Lease::Read,
        },
        StepReply::Data {
            bytes: 1 << 20,
            end_of_file: true,
        },
        StepReply::Written {
            offset: 1,
            bytes: 2,
            attributes: attributes(),
        },
        StepReply::Position(1 << 35),
        StepReply::Removed {
            parent: attributes(),
            parent_lease: Lease::Exclusive,
            entry: None,
        },
        StepReply::Renamed {
            parent: attributes(),
            to_parent: attributes(),
            entry: entry(),
            replaced: Some(Box::new(entry())),
        },
    ]
}

fn data_replies() -> Vec<StepReply> {
    vec![
        StepReply::Directory {
            entries: vec![DirectoryEntry {
                name: name(),
                inode: 12,
                kind: FileKind::File,
                cookie: 13,
                entry: Some(entry()),
            }],
            end: true,
            lease: Lease::Read,
        },
        StepReply::Contents {
            files: vec![Some((7, attributes(), Lease::Read)), None],
        },
        StepReply::FileSystem(FileSystemStat {
            block_size: 4096,
            blocks: 5,
            blocks_free: 4,
            blocks_available: 3,
            files: 2,
            files_free: 1,
            name_max: 255,
        }),
        StepReply::Xattr(vec![0, 255]),
        StepReply::XattrNames(b"user.a\0".to_vec()),
        StepReply::Lock(Some(lock())),
        StepReply::Layout(FileLayout {
            unit_log2: 20,
            generation: 300,
            columns: vec![FileColumn {
                server: ServerId([4; 16]),
                store: StoreId([5; 16]),
                object: ObjectId([6; 16]),
            }],
        }),
    ]
}

pub(crate) fn requests() -> Vec<Sample> {
    let samples = vec![
        Request::Ping,
        Request::Files(Compound {
            who: Principal::new(1000, 100, vec![4, 300]),
            settled: Settled {
                below: RequestId(129),
                except: vec![RequestId(3)],
            },
            steps: vec![
                Step::Attach { volume: "v".into() },
                Step::Attributes {
                    target: Target::Result(0),
                },
            ],
        }),
        Request::ReturnLeases(vec![handle()]),
        Request::RecallDone(200),
        Request::EndSession,
        Request::Admin(AdminRequest::Status),
        Request::Enrol {
            secret: [9; 32],
            signing_request: vec![1, 2, 3],
            label: "laptop".into(),
        },
        Request::Warm { bytes: 65536 },
        Request::LineChanged { is_longer: true },
        Request::Object(super::object_samples::batch()),
        Request::Reserve {
            uid: 1000,
            request: super::reserve_samples::request(),
        },
        Request::Cluster(ClusterRequest::Servers),
        Request::EnrolServer {
            secret: [9; 32],
            signing_request: vec![1, 2, 3],
            label: "disks".into(),
            server: ServerId([0x71; 16]),
        },
        Request::EnrolManager {
            secret: [9; 32],
            signing_request: vec![1, 2, 3],
            label: "two".into(),
        },
    ];
    names!(samples, Request: Ping Files ReturnLeases RecallDone EndSession Admin Enrol Warm
        LineChanged Object Reserve Cluster EnrolServer EnrolManager)
}

pub(crate) fn replies() -> Vec<Sample> {
    let samples = vec![
        Reply::Done,
        Reply::Files(CompoundReply {
            results: vec![Ok(StepReply::Done), Err(FsError::NoSpace)],
            server_micros: 1234,
        }),
        Reply::Admin(AdminReply::Done),
        Reply::Enrolled {
            certificate: vec![0x30, 0x82],
        },
        Reply::Refused(Refusal::Overloaded),
        Reply::Object(super::object_samples::results()),
        Reply::Reserve(Box::new(super::reserve_samples::reply())),
        Reply::Cluster(ClusterReply::Registered { credentials: 300 }),
        Reply::ManagerEnrolled(Box::new(ManagerSecrets {
            certificate: vec![1, 2, 3],
            authority: "certificate".into(),
            authority_key: "key".into(),
            handle_key: SharedKey([0x73; 32]),
            meta: "etcd://one:2379/azekura".into(),
        })),
    ];
    names!(samples, Reply: Done Files Admin Enrolled Refused Object Reserve Cluster
        ManagerEnrolled)
}

pub(crate) fn handshake() -> Vec<Sample> {
    let hello = Hello {
        version_min: WireVersion::V1,
        version_max: WireVersion(300),
        features: Features(0),
        session: SessionId([1; 16]),
        role: ConnectionRole::Bulk,
        cluster: Some(ClusterId([2; 16])),
        last_boot: None,
        host: "host".into(),
    };
    let welcome = Welcome {
        version: WireVersion::V1,
        features: Features(u64::MAX),
        cluster: ClusterId([2; 16]),
        boot: BootId([3; 16]),
        write_verifier: WriteVerifier([9; 16]),
        store_verifier: WriteVerifier([10; 16]),
        session_known: true,
        challenge: Some([4; 32]),
    };
    let proof = Proof {
        certificate: vec![5, 6],
        signature: vec![7],
    };
    let farewells = vec![
        Farewell::Version {
            min: WireVersion(1),
            max: WireVersion(2),
        },
        Farewell::Cluster,
        Farewell::Unauthenticated,
        Farewell::ForeignSession,
        Farewell::Protocol,
        Farewell::Overloaded,
        Farewell::Stopping,
        Farewell::Replaced,
        Farewell::Ending,
        Farewell::Standby {
            leader: "one.example:7700".into(),
        },
    ];
    let mut samples = one("Hello", &hello);
    samples.extend(one("Welcome", &welcome));
    samples.extend(one("Proof", &proof));
    samples.extend(names!(farewells, Farewell:
        Version Cluster Unauthenticated ForeignSession Protocol Overloaded Stopping Replaced Ending
        Standby
    ));
    samples
}

pub(crate) fn notices() -> Vec<Sample> {
    let recall = |what| RecallItem {
        handle: handle(),
        what,
    };
    let mut samples = vec![Notice::Recall {
        id: 5,
        items: vec![
            recall(Recall::Everything),
            recall(Recall::Entry(name())),
            recall(Recall::Exclusive),
        ],
    }];
    samples.push(Notice::Forget { id: 6 });
    samples.push(Notice::Settle { id: 7 });
    samples.push(Notice::WriteAgain { id: 8 });
    names!(samples, Notice: Recall Forget Settle WriteAgain)
}

fn volume() -> VolumeSummary {
    VolumeSummary {
        id: VolumeId([3; 16]),
        name: "lab".into(),
        kind: VolumeKind::Export {
            path: "/srv/lab".into(),
            read_only: false,
        },
        trouble: Some("gone".into()),
    }
}

pub(crate) fn admin_requests() -> Vec<Sample> {
    let name = || String::from("lab");
    let samples = vec![
        AdminRequest::Status,
        AdminRequest::VolumeList,
        AdminRequest::VolumeShow { name: name() },
        AdminRequest::VolumeCreate {
            name: name(),
            kind: volume().kind,
            dry_run: true,
        },
        AdminRequest::VolumeDelete {
            name: name(),
            dry_run: false,
        },
        AdminRequest::JoinCreate(JoinTerms {
            kind: CredentialKind::User { uid: 1000 },
            seconds_valid: 600,
        }),
        AdminRequest::CredentialList { skip: 1024 },
        AdminRequest::CredentialRevoke {
            serial: "0a".into(),
            dry_run: false,
        },
        AdminRequest::Scrub {
            store: Some(StoreId([5; 16])),
            bytes_per_second: Some(50_000_000),
        },
        AdminRequest::AclStatus { name: name() },
        AdminRequest::AclSwitch {
            name: name(),
            on: true,
            dry_run: false,
        },
        AdminRequest::AclViews {
            name: name(),
            ask: AclViewsAsk::Store {
                policy: "entries>=6".into(),
                dry_run: true,
            },
        },
    ];
    names!(samples, AdminRequest:
        Status VolumeList VolumeShow VolumeCreate VolumeDelete JoinCreate CredentialList
        CredentialRevoke Scrub AclStatus AclSwitch AclViews
    )
}

pub(crate) fn admin_replies() -> Vec<Sample> {
    let session = SessionSummary {
        host: "host".into(),
        address: "127.0.0.1:5".into(),
        kind: CredentialKind::Host,
        connections: 9,
        opens: 1,
        locks: 2,
        leases: 3,
        requests: 4,
        bytes_read: 5,
        bytes_written: 6,
        seconds_idle: 7,
    };
    let worker = WorkerSummary {
        name: "scrub".into(),
        state: "idle".into(),
        progress: 8,
    };
    let samples = vec![
        AdminReply::Done,
        AdminReply::Status(ServerStatus {
            version: "0.1.0".into(),
            cluster: ClusterId([2; 16]),
            boot: BootId([3; 16]),
            seconds_up: 60,
            volumes: vec![volume()],
            sessions: vec![session],
            workers: vec![worker],
        }),
        AdminReply::Volumes(vec![volume()]),
        AdminReply::JoinSecret([6; 32]),
        AdminReply::Credentials {
            list: vec![CredentialSummary {
                serial: "0a".into(),
                kind: CredentialKind::Admin,
                label: "first".into(),
                issued: 1_700_000_000,
                revoked: true,
            }],
            more: true,
        },
        AdminReply::Failed {
            code: AdminError::InUse,
            message: "busy".into(),
        },
        AdminReply::Acl(super::acl_samples::summary()),
        AdminReply::AclViews(Box::new(super::acl_samples::views())),
    ];
    names!(samples, AdminReply:
        Done Status Volumes JoinSecret Credentials Failed Acl AclViews
    )
}

fn acl_words() -> Vec<Sample> {
    let asked = super::acl_samples::asked().into();
    [
        names!(asked, AclViewsAsk: Show Store Calibrate Work Stop),
        words!(AclViewWork: Convert ConvertAll Compact),
        words!(AclWorkState: Running Done Stopped ReadOnly Full),
    ]
    .concat()
}

/// Enums without fields (and the few small ones with), which messages are made of.
pub(crate) fn words() -> Vec<Sample> {
    let kinds = vec![
        CredentialKind::Admin,
        CredentialKind::Host,
        CredentialKind::User { uid: 5 },
        CredentialKind::Server,
        CredentialKind::Manager { epoch: 300 },
    ];
    let times = vec![SetTime::Now, SetTime::To(Timestamp::default())];
    let recalls = vec![Recall::Everything, Recall::Entry(name()), Recall::Exclusive];
    [
        names!(kinds, CredentialKind: Admin Host User Server Manager),
        names!(times, SetTime: Now To),
        names!(recalls, Recall: Everything Entry Exclusive),
        names!(vec![target(), found()], Target: Handle Result),
        names!(
            vec![WriteAt::Offset(0), WriteAt::End, WriteAt::Again(0)],
            WriteAt: Offset End Again
        ),
        words!(FileKind: File Directory Symlink Fifo Socket CharDevice BlockDevice),
        words!(StoredWhat: Data Space Hole),
        words!(Access: Read Write ReadWrite Append ReadAppend),
        names!(
            vec![
                LayoutPurpose::Read,
                LayoutPurpose::Write,
                LayoutPurpose::WriteAgain,
                LayoutPurpose::WritePartAgain(Extent::new(300, 5)),
                LayoutPurpose::Append,
            ],
            LayoutPurpose: Read Write WriteAgain WritePartAgain Append
        ),
        names!(
            vec![
                volume().kind,
                VolumeKind::Parallel {
                    unit_log2: Some(20),
                    width: 4,
                },
            ],
            VolumeKind: Export Parallel
        ),
        words!(Lease: None Read Exclusive),
        words!(AllocateMode: Extend KeepSize PunchHole ZeroRange ZeroRangeKeepSize),
        words!(SeekWhat: Data Hole),
        words!(RenameMode: Replace NoReplace Exchange),
        words!(AclGrounds:
            Superuser OwnerBits GroupBits OthersBits PosixEntry Groups RichEntry Owner Mode Nothing
            Unreadable Sticky NoExecuteBit Everybody
        ),
        acl_words(),
        words!(LockKind: Flock Posix),
        words!(LockMode: Shared Exclusive Unlock),
        words!(ConnectionRole: Main Bulk Enrolment),
        words!(AdminError: NotFound Exists Invalid InUse Io Limit Reserved),
        words!(Refusal:
            Malformed Forbidden ForeignUser Cancelled NoSession Overloaded JoinString
            OutcomeUnknown
        ),
        words!(FsError:
            NotPermitted NotFound Io NoSuchAddress TooBig BadOpen WouldBlock NoMemory AccessDenied
            Busy Exists CrossDevice NoDevice NotDirectory IsDirectory Invalid TooManyOpen TextBusy
            FileTooLarge NoSpace ReadOnly TooManyLinks Range Deadlock NameTooLong NoLocks
            NotImplemented NotEmpty Loop NoData Overflow NotSupported TimedOut Stale QuotaExceeded
            Cancelled Interrupted
        ),
    ]
    .concat()
}

/// All of them, by the name of their golden file.
pub(crate) fn all() -> Vec<(&'static str, Vec<Sample>)> {
    let mut all = vec![
        ("step", steps()),
        ("step_reply", step_replies()),
        ("request", requests()),
        ("reply", replies()),
        ("handshake", handshake()),
        ("notice", notices()),
        ("admin_request", admin_requests()),
        ("admin_reply", admin_replies()),
        ("word", words()),
    ];
    all.extend(super::object_samples::all());
    all.extend(super::reserve_samples::all());
    all.extend(super::cluster_samples::all());
    all
}
