//! What the data directory keeps, and how damage to it is noticed.

use super::registry::RegistryError;
use super::*;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

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
    assert_eq!(first.authority.cluster(), cluster);
    assert_eq!(registry.credentials().len(), 1);
    let boot = first.boot;
    drop(first);
    let (second, _) = DataDirectory::open(&path).unwrap();
    assert!(second.boot > boot, "{} then {}", boot, second.boot);
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
        path: PathBuf::from("/srv"),
        read_only: false,
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

    assert!(registry.take_join(&[0; 32], now).is_err());
    let kind = registry.take_join(&secret, now).unwrap();
    assert_eq!(kind, CredentialKind::User { uid: 7 });
    assert!(matches!(
        registry.take_join(&secret, now),
        Err(RegistryError::NotFound)
    ));
    let after = now + Duration::from_secs(61);
    assert!(matches!(
        registry.take_join(&late, after),
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
    assert!(registry.is_valid("0a") && !registry.is_valid("0b"));
    registry.revoke("0a").unwrap();
    assert!(matches!(
        registry.revoke("0b"),
        Err(RegistryError::NotFound)
    ));
    drop((open, registry));
    let (_open, registry) = DataDirectory::open(&path).unwrap();
    assert!(!registry.is_valid("0a") && registry.has_credential("0a"));
}
