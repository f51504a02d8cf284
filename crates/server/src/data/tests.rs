//! What the data directory keeps, and how damage to it is noticed.

use super::registry::RegistryError;
use super::*;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;
use wire::identity::ClientVerifier;

fn fresh() -> (tempfile::TempDir, PathBuf) {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("srv");
    (parent, path)
}

#[test]
fn what_was_initialised_opens_and_each_run_has_its_own_identity() {
    let (_parent, path) = fresh();
    let (cluster, admin) = DataDirectory::init(&path).unwrap();
    assert_eq!(admin.cluster(), cluster);
    let (first, registry) = DataDirectory::open(&path).unwrap();
    assert_eq!(first.cluster, cluster);
    assert_eq!(registry.credentials(0, 9).0.len(), 1);
    let boot = first.boot;
    first.begin_run().unwrap();
    drop(first);
    let (second, _) = DataDirectory::open(&path).unwrap();
    assert!(second.boot > boot, "{} then {}", boot, second.boot);
}

#[test]
fn a_start_that_fails_leaves_the_note_of_a_failed_flush() {
    let (_parent, path) = fresh();
    DataDirectory::init(&path).unwrap();
    let (first, _) = DataDirectory::open(&path).unwrap();
    first.begin_run().unwrap();
    let verifier = first.write_verifier;
    first.mark_flush_failed();
    drop(first);
    for _ in 0..2 {
        // The journal cannot be opened, say: the run does not begin.
        let (failed, _) = DataDirectory::open(&path).unwrap();
        assert!(failed.lost_unflushed && failed.write_verifier != verifier);
    }
    let (second, _) = DataDirectory::open(&path).unwrap();
    second.begin_run().unwrap();
    second.begin_serving().unwrap();
    let verifier = second.write_verifier;
    drop(second);
    let (third, _) = DataDirectory::open(&path).unwrap();
    assert!(!third.lost_unflushed && third.write_verifier == verifier);
    assert!(
        third.lost_earlier,
        "whoever has not given it again does not"
    );
}

#[test]
fn what_was_lost_is_taken_again_after_runs_that_served_nobody() {
    let (_parent, path) = fresh();
    DataDirectory::init(&path).unwrap();
    let (first, _) = DataDirectory::open(&path).unwrap();
    first.begin_run().unwrap();
    first.begin_serving().unwrap();
    first.mark_flush_failed();
    drop(first);
    for _ in 0..3 {
        let (unserved, _) = DataDirectory::open(&path).unwrap();
        assert!(unserved.lost_unflushed);
        unserved.begin_run().unwrap();
    }
    let (last, _) = DataDirectory::open(&path).unwrap();
    assert!(last.lost_unflushed);
}

#[test]
fn two_servers_do_not_share_a_directory() {
    let (_parent, path) = fresh();
    DataDirectory::init(&path).unwrap();
    let _first = DataDirectory::open(&path).unwrap();
    assert!(matches!(
        DataDirectory::open(&path),
        Err(DataError::InUse(_))
    ));
}

#[test]
fn only_an_empty_directory_is_initialised_and_only_once() {
    let (_parent, path) = fresh();
    assert!(matches!(
        DataDirectory::open(&path),
        Err(DataError::NotInitialised(_))
    ));
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("photo.jpg"), "x").unwrap();
    assert!(matches!(
        DataDirectory::init(&path),
        Err(DataError::NotEmpty(_))
    ));
    std::fs::remove_file(path.join("photo.jpg")).unwrap();
    DataDirectory::init(&path).unwrap();
    assert!(matches!(
        DataDirectory::init(&path),
        Err(DataError::Initialised(_))
    ));
}

#[test]
fn nothing_is_readable_for_others() {
    let (_parent, path) = fresh();
    DataDirectory::init(&path).unwrap();
    let _open = DataDirectory::open(&path).unwrap();
    for entry in std::fs::read_dir(&path).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{:?} has mode {mode:o}", entry.path());
    }
}

#[test]
fn damage_is_noticed_in_every_byte_and_named() {
    let (_parent, path) = fresh();
    DataDirectory::init(&path).unwrap();
    let file = path.join("volumes.toml");
    let record = VolumeRecord {
        id: new_volume_id(),
        name: "lab".to_owned(),
        place: VolumePlace::Export {
            path: PathBuf::from("/srv"),
            read_only: false,
            rich: false,
            store: acl::Policy::default(),
            root: None,
        },
    };
    let (open, mut registry) = DataDirectory::open(&path).unwrap();
    registry.add_volume(record.clone()).unwrap();
    drop(open);
    let good = std::fs::read(&file).unwrap();
    for place in 0..good.len() {
        let mut bad = good.clone();
        bad[place] ^= 1;
        std::fs::write(&file, &bad).unwrap();
        let error = DataDirectory::open(&path).err().unwrap();
        assert!(!error.to_string().is_empty());
        assert!(
            matches!(
                error,
                DataError::Damaged { .. } | DataError::Format { .. } | DataError::Io { .. }
            ),
            "byte {place}: {error}"
        );
    }
    std::fs::write(&file, &good).unwrap();
    let (_open, registry) = DataDirectory::open(&path).unwrap();
    assert_eq!(registry.volumes(), [record]);
}

#[test]
fn a_start_notes_which_directory_an_older_export_is_and_serves_no_other() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: exports need root");
    }
    let (parent, path) = fresh();
    let export = parent.path().canonicalize().unwrap().join("export");
    std::fs::create_dir(&export).unwrap();
    DataDirectory::init(&path).unwrap();
    let record = VolumeRecord {
        id: new_volume_id(),
        name: "lab".to_owned(),
        place: VolumePlace::Export {
            path: export.clone(),
            read_only: false,
            rich: false,
            store: acl::Policy::default(),
            root: None,
        },
    };
    let (open, mut registry) = DataDirectory::open(&path).unwrap();
    registry.add_volume(record.clone()).unwrap();
    drop(open);
    let text = || std::fs::read_to_string(path.join("volumes.toml")).unwrap();
    assert!(!text().contains("root"), "as of an older program");
    assert_eq!(trouble_in_a_run(&path), None);
    let noted = text();
    assert!(noted.contains("root = \"type="), "{noted}");
    // Put away, so that the new one cannot have its inode.
    let away = export.with_file_name("away");
    std::fs::rename(&export, &away).unwrap();
    std::fs::create_dir(&export).unwrap();
    let trouble = trouble_in_a_run(&path).expect("another directory");
    let begin = "AZ0307: another directory is there; this is not the directory";
    assert!(trouble.starts_with(begin), "{trouble}");
    std::fs::remove_dir(&export).unwrap();
    std::os::unix::fs::symlink("/etc", &export).unwrap();
    let trouble = trouble_in_a_run(&path).expect("another directory");
    let begin = "AZ0307: a symbolic link leads to /etc; ";
    assert!(trouble.starts_with(begin), "{trouble}");
    // The same one by another way.
    std::fs::remove_file(&export).unwrap();
    std::os::unix::fs::symlink(&away, &export).unwrap();
    assert_eq!(trouble_in_a_run(&path), None);
    assert_eq!(text(), noted);
}

/// What keeps the first volume from being served.
fn trouble_in_a_run(path: &Path) -> Option<String> {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let address = "127.0.0.1:0".parse().unwrap();
        let server = crate::Server::start(crate::ServerConfig::new(path, address));
        let server = server.await.unwrap();
        let trouble = server.core().volumes.summaries().remove(0).trouble;
        server.shutdown().await;
        trouble
    })
}

#[test]
fn whether_a_volume_has_rich_acls_is_durable_when_it_is_said() {
    let (_parent, path) = fresh();
    DataDirectory::init(&path).unwrap();
    let record = VolumeRecord {
        id: new_volume_id(),
        name: "lab".to_owned(),
        place: VolumePlace::Export {
            path: PathBuf::from("/srv"),
            read_only: false,
            rich: false,
            store: acl::Policy::default(),
            root: None,
        },
    };
    let parallel = VolumeRecord {
        id: new_volume_id(),
        name: "par".to_owned(),
        place: VolumePlace::Parallel(ParallelRecord {
            unit_log2: 20,
            width: 4,
            rich: false,
        }),
    };
    let is_rich = |registry: &crate::data::Registry| {
        let volumes = registry.volumes().iter();
        let rich = volumes.map(|volume| match &volume.place {
            VolumePlace::Export { rich, .. } => *rich,
            VolumePlace::Parallel(parallel) => parallel.rich,
        });
        rich.collect::<Vec<bool>>()
    };
    let (open, mut registry) = DataDirectory::open(&path).unwrap();
    for record in [record, parallel] {
        registry.add_volume(record).unwrap();
    }
    assert!(registry.set_rich("none", true).is_err());
    drop(open);
    for on in [true, false] {
        for (name, expected) in [("lab", [on, !on]), ("par", [on, on])] {
            registry.set_rich("par", expected[1]).unwrap();
            registry.set_rich(name, on).unwrap();
            let (_open, again) = DataDirectory::open(&path).unwrap();
            assert_eq!(is_rich(&again), expected);
        }
    }
    let policy = |registry: &crate::data::Registry| match registry.volumes()[0].place {
        VolumePlace::Export { store, .. } => store,
        VolumePlace::Parallel(_) => panic!("it is an export"),
    };
    assert!(registry.set_store("none", acl::Policy::Never).is_err());
    for text in ["never", "entries>=6", "6..34", "always", "measured"] {
        registry.set_store("lab", text.parse().unwrap()).unwrap();
        let (_open, again) = DataDirectory::open(&path).unwrap();
        assert_eq!(policy(&again).to_string(), text);
    }
}

#[test]
fn a_newer_format_is_refused_with_advice() {
    let (_parent, path) = fresh();
    DataDirectory::init(&path).unwrap();
    let file = path.join("joins.toml");
    let text = std::fs::read_to_string(&file)
        .unwrap()
        .replace("format 1", "format 2");
    std::fs::write(&file, text).unwrap();
    let error = DataDirectory::open(&path).err().unwrap();
    assert!(
        matches!(
            error,
            DataError::Format {
                found: 2,
                known: 1,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_join_secret_is_good_once_and_in_time() {
    let (_parent, path) = fresh();
    DataDirectory::init(&path).unwrap();
    let (_open, mut registry) = DataDirectory::open(&path).unwrap();
    let now = SystemTime::now();
    let secret = registry
        .add_join(CredentialKind::User { uid: 7 }, 60, now)
        .unwrap();
    let late = registry.add_join(CredentialKind::Host, 60, now).unwrap();
    let stored = std::fs::read_to_string(path.join("joins.toml")).unwrap();
    assert!(
        !stored.contains(&to_hex(&secret)),
        "the secret itself is not stored"
    );

    assert!(
        registry
            .take_join(&[0; 32], Enrolling::Client, now)
            .is_err()
    );
    let kind = registry.take_join(&secret, Enrolling::Client, now).unwrap();
    assert_eq!(kind, CredentialKind::User { uid: 7 });
    assert!(matches!(
        registry.take_join(&secret, Enrolling::Client, now),
        Err(RegistryError::NotFound)
    ));
    let after = now + Duration::from_secs(61);
    assert!(matches!(
        registry.take_join(&late, Enrolling::Client, after),
        Err(RegistryError::NotFound)
    ));
}

#[test]
fn revocation_survives_a_restart() {
    let (_parent, path) = fresh();
    DataDirectory::init(&path).unwrap();
    let (open, mut registry) = DataDirectory::open(&path).unwrap();
    registry
        .add_credential("0a", CredentialKind::Host, "h", SystemTime::now())
        .unwrap();
    let valid = registry.valid_credentials();
    assert!(valid.contains("0a") && !valid.contains("0b"));
    registry.revoke("0a").unwrap();
    assert!(matches!(
        registry.revoke("0b"),
        Err(RegistryError::NotFound)
    ));
    assert!(!valid.contains("0a"));
    drop((open, registry));
    let (_open, registry) = DataDirectory::open(&path).unwrap();
    assert!(!registry.valid_credentials().contains("0a") && registry.has_credential("0a"));
}

/// Names below a directory, but for the lock.
fn names(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).unwrap().map(Result::unwrap);
    let mut names: Vec<_> = entries
        .map(|entry| entry.file_name().into_string().unwrap())
        .filter(|name| name != "lock")
        .collect();
    names.sort();
    names
}

#[test]
fn an_initialisation_that_was_cut_short_is_done_again() {
    let (_parent, whole) = fresh();
    DataDirectory::init(&whole).unwrap();
    let names = names(&whole);
    // What a crash leaves: any of the files but the last one, perhaps one half written.
    for kept in 0..1 << names.len() {
        let left = |name: &String| {
            name != "cluster.toml"
                && kept & (1 << names.iter().position(|n| n == name).unwrap()) != 0
        };
        let (_parent, path) = fresh();
        std::fs::create_dir(&path).unwrap();
        for name in names.iter().filter(|name| left(name)) {
            let directory = !name.ends_with(".toml");
            if directory {
                std::fs::create_dir(path.join(name)).unwrap();
                std::fs::write(path.join(name).join("credential.pem"), "half").unwrap();
            } else {
                std::fs::write(path.join(name), "half").unwrap();
                std::fs::write(path.join(name).with_extension("new"), "half").unwrap();
            }
        }
        let (cluster, admin) = DataDirectory::init(&path).unwrap();
        let (open, registry) = DataDirectory::open(&path).unwrap();
        assert_eq!(open.cluster, cluster);
        let kept = Credential::load(&path.join(ADMIN)).unwrap();
        assert_eq!(kept.to_pem(), admin.to_pem());
        let serial = registry.credentials(0, 9).0[0].serial.clone();
        let peer = ClientVerifier::new(&open.server).unwrap().verify(
            std::slice::from_ref(kept.certificate()),
            rustls::pki_types::UnixTime::now(),
        );
        assert_eq!(peer.unwrap().serial, serial);
    }
}

#[test]
fn whoever_connects_does_not_wait_for_a_change_that_waits_for_the_disk() {
    let (_parent, path) = fresh();
    let (_, admin) = DataDirectory::init(&path).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let address = "127.0.0.1:0".parse().unwrap();
        let server = crate::Server::start(crate::ServerConfig::new(&path, address))
            .await
            .unwrap();
        // As an administrator's change does for as long as fsync(2) takes.
        let changing = server.core().clone();
        let (begun, has_begun) = std::sync::mpsc::channel();
        let (end, may_end) = std::sync::mpsc::channel::<()>();
        let change = std::thread::spawn(move || {
            let _registry = changing.registry();
            begun.send(()).unwrap();
            let _ = may_end.recv();
        });
        has_begun.recv().unwrap();
        let welcome =
            tokio::time::timeout(Duration::from_secs(20), greet(server.address(), &admin)).await;
        drop(end);
        change.join().unwrap();
        welcome.expect("a welcome while the change waits");
        server.shutdown().await;
    });
}

/// Connects and waits for the welcome.
async fn greet(address: std::net::SocketAddr, credential: &Credential) {
    use wire::frame::{Class, Frame, FrameKind};
    use wire::message::{ConnectionRole, Features, Hello, encode};
    use wire::version::WireVersion;
    let tls = (
        wire::identity::client_config(credential).unwrap(),
        wire::identity::server_name(),
    );
    let limit = Duration::from_secs(20);
    let mut connection = wire::link::connect(address, Some(tls), limit)
        .await
        .unwrap();
    let hello = Hello {
        version_min: WireVersion::OLDEST,
        version_max: WireVersion::NEWEST,
        features: Features::OURS,
        session: base::SessionId([1; 16]),
        role: ConnectionRole::Main,
        cluster: None,
        last_boot: None,
        host: "tester".to_owned(),
    };
    let frame = Frame {
        kind: FrameKind::Hello,
        class: Class::Metadata,
        resent: false,
        request: base::RequestId(0),
        body: encode(&hello),
        payload: wire::payload::Payload::new(),
    };
    connection.writer.write(frame).await.unwrap();
    connection.writer.flush().await.unwrap();
    assert_eq!(
        connection.reader.read().await.unwrap().kind,
        FrameKind::Welcome
    );
}
