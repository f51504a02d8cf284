//! Golden bytes of records, names, and records that are passed off as others.

use super::*;
use crate::source::Directory;
use expect_test::expect;
use std::fs;

fn hex(bytes: &[u8]) -> String {
    let line = |line: &[u8]| -> String { line.iter().map(|byte| format!("{byte:02x}")).collect() };
    bytes.chunks(32).map(line).collect::<Vec<_>>().join("\n")
}

fn key() -> SigningKey {
    SigningKey::from_seed(&[7; 32])
}

fn manifest() -> Manifest {
    Manifest {
        image_bytes: 1 << 30,
        index: [1; 32],
        index_bytes: 163_944,
        parents: vec![VersionId([2; 32])],
        time: 1_800_000_000,
        new_bytes: 5_000,
        new_chunks: 2,
        note: "updates".into(),
    }
}

fn tag_record() -> TagRecord {
    let entry = |version, time| TagEntry {
        version: VersionId([version; 32]),
        time,
    };
    TagRecord::new(&"base:1".parse().unwrap(), entry(4, 1_800_000_000))
        .moved(entry(5, 1_800_000_600))
}

#[test]
fn records_have_the_bytes_that_they_had() {
    let (version, bytes) = manifest().sign(&key());
    expect![[r#"
        3fb18647d954dcb5573a09c769e180222177eabccd13424fad1ffc2a4fcf7cce
        415a4b4449534b520100010059000000ea4a6c63e29c520abef5507b132ec5f9
        954776aebebe7b92421eea691446d22cea8e274de2a111001d194f61a747ab4e
        0d510fe3246c225816183fe4a7feea8f775e6a6e691e819636fc1de1f0719a8d
        a4add023546bf8904db9d1e3af5b2a0c80808080040101010101010101010101
        010101010101010101010101010101010101010101e8800a0102020202020202
        0202020202020202020202020202020202020202020202020280c8ceb40d8827
        020775706461746573"#]]
    .assert_eq(&format!("{version}\n{}", hex(&bytes)));
    let bytes = tag_record().sign(&key());
    expect![[r#"
        415a4b4449534b520100020053000000ea4a6c63e29c520abef5507b132ec5f9
        954776aebebe7b92421eea691446d22c651338b4e1a248e56ebdda070aa07468
        c4d10782776b0f9f51a41a9356986a68de17c562caffac2a975288e5dd824f14
        953aa9b7fa57440074959b0ad83f210106626173653a31010205050505050505
        05050505050505050505050505050505050505050505050505b0d1ceb40d0404
        04040404040404040404040404040404040404040404040404040404040480c8
        ceb40d"#]]
    .assert_eq(&hex(&bytes));
}

#[test]
fn a_tag_is_two_plain_words() {
    for good in [
        "base:1",
        "a.b_c-D:2026-11-21",
        &format!("x:{}", "y".repeat(64)),
    ] {
        let tag: Tag = good.parse().unwrap();
        assert_eq!(tag.to_string(), good);
        let file = tag.file().to_string();
        assert_eq!(Tag::of_file(file.strip_prefix("tags/").unwrap()), Some(tag));
    }
    let long = format!("x:{}", "y".repeat(65));
    for bad in [
        "", "base", ":1", "base:", "a:b:c", "../a:1", "a/b:1", ".a:1", "a@b:1", "a:..", &long,
    ] {
        assert!(
            matches!(bad.parse::<Tag>(), Err(DiskError::Tag(_))),
            "{bad:?}"
        );
    }
    for bad in ["base.azt", "base@1", "@.azt", "..@1.azt", "a@b@c.azt"] {
        assert_eq!(Tag::of_file(bad), None, "{bad:?}");
    }
}

#[test]
fn a_record_is_not_taken_for_that_of_another_name_or_version() {
    let directory = tempfile::tempdir().unwrap();
    let source = Directory::new(directory.path());
    let put = |file: &FileName, bytes: &[u8]| {
        let path = source.path_of(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    let trust = Trust::Keys(vec![key().public()]);
    let [one, two]: [Tag; 2] = ["base:1", "base:2"].map(|tag| tag.parse().unwrap());
    assert_eq!(TagRecord::find(&source, &one, &trust).unwrap(), None);
    put(&one.file(), &tag_record().sign(&key()));
    put(&two.file(), &tag_record().sign(&key()));
    let found = TagRecord::read(&source, &one, &trust).unwrap();
    assert_eq!(found, tag_record());
    assert_eq!(found.version(), VersionId([5; 32]));
    let damage = |error| match error {
        DiskError::Damaged { damage, .. } => damage,
        other => panic!("{other}"),
    };
    let error = TagRecord::read(&source, &two, &trust).unwrap_err();
    assert_eq!(damage(error), Damage::Foreign);

    let (version, bytes) = manifest().sign(&key());
    let other = VersionId([9; 32]);
    put(&version.file(), &bytes);
    put(&other.file(), &bytes);
    assert_eq!(
        Manifest::read(&source, version, &trust).unwrap(),
        manifest()
    );
    let error = Manifest::read(&source, other, &trust).unwrap_err();
    assert_eq!(damage(error), Damage::Digest);
    let nobody = Trust::Keys(Vec::new());
    let error = Manifest::read(&source, version, &nobody).unwrap_err();
    assert!(matches!(error, DiskError::Untrusted { .. }), "{error}");
    let error = TagRecord::find(&source, &one, &nobody).unwrap_err();
    assert!(matches!(error, DiskError::Untrusted { .. }), "{error}");

    // An index other than the one that the manifest means.
    put(&manifest().index_file(), b"other");
    let error = manifest().read_index(&source).unwrap_err();
    assert_eq!(damage(error), Damage::Digest);
}

#[test]
fn an_image_that_no_disk_can_have_is_not_believed() {
    let directory = tempfile::tempdir().unwrap();
    let source = Directory::new(directory.path());
    fs::create_dir(directory.path().join("versions")).unwrap();
    for image_bytes in [u64::MAX, DISK_IMAGE_BYTES_MAX + 1, DISK_IMAGE_BYTES_MAX] {
        let manifest = Manifest {
            image_bytes,
            ..manifest()
        };
        let (version, bytes) = manifest.sign(&key());
        fs::write(source.path_of(&version.file()), bytes).unwrap();
        let read = Manifest::read(&source, version, &Trust::Anybody);
        let is_read = read.is_ok_and(|read| read == manifest);
        assert_eq!(is_read, image_bytes == DISK_IMAGE_BYTES_MAX);
    }
}

#[test]
fn a_tag_forgets_what_is_older_than_it_remembers() {
    let entry = |number: u64| TagEntry {
        version: VersionId([number as u8; 32]),
        time: number as i64,
    };
    let mut record = TagRecord::new(&"a:b".parse().unwrap(), entry(0));
    for number in 1..=DISK_TAG_HISTORY_MAX as u64 {
        record = record.moved(entry(number));
    }
    assert_eq!(record.entries.len(), DISK_TAG_HISTORY_MAX);
    assert_eq!(record.moves, DISK_TAG_HISTORY_MAX as u64);
    assert_eq!(record.entries.last(), Some(&entry(1)));
    assert!((record.sign(&key()).len() as u64) < DISK_RECORD_BYTES_MAX);
}
