//! Rich ACLs as bytes: golden ones, hostile ones, and every list as itself again.

use crate::lists::{self, any_list, target};
use acl::{
    Ace, AceFlags, AceKind, AclError, Control, Descriptor, Id, Identities, IdentityTable, Origin,
    PosixAcl, PosixFile, RichAcl, Rights, Sid, Source, Stored, UnixIds, Who,
};
use proptest::prelude::*;

fn sample() -> RichAcl {
    let domain = "S-1-5-21-1-2-3-1104".parse().expect("a SID");
    let inherited = AceFlags::FILE_INHERIT.with(AceFlags::INHERITED);
    let aces = vec![
        Ace::allow(Who::Owner, Rights::from_bits(0x16_019f).expect("rights")),
        Ace::deny(Who::User(1000), Rights::WRITE_DATA),
        Ace {
            flags: inherited,
            ..Ace::allow(Who::Group(7), Rights::READ_DATA)
        },
        Ace::allow(Who::Sid(domain), Rights::ALL),
        Ace::allow(Who::Everyone, Rights::EXECUTE),
    ];
    RichAcl::new(aces).expect("a list")
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pairs = digits.chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).expect("ASCII");
        u8::from_str_radix(pair, 16).expect("two digits")
    });
    pairs.collect()
}

#[test]
fn nfs4_bytes_are_those_of_the_attribute() {
    let golden = hex("00000005
         00000000 00000000 0016019f 00000006 4f574e45 52400000
         00000001 00000000 00000002 00000004 31303030
         00000000 000000c1 00000001 00000001 37000000
         00000000 00000000 001f01ff 00000013 532d312d 352d3231 2d312d32 2d332d31 31303400
         00000000 00000000 00000020 00000009 45564552 594f4e45 40000000");
    assert_eq!(sample().to_nfs4(&target(), &UnixIds), Ok(golden.clone()));
    assert_eq!(RichAcl::from_nfs4(&golden, &UnixIds), Ok(sample()));
}

#[test]
fn descriptors_are_those_of_windows() {
    let golden = hex("01000480 14000000 24000000 00000000 34000000
         0102000000000016 01000000 01000000
         0102000000000016 02000000 0a000000
         0200 8800 0500 0000
         00 00 1800 9f011600 0102000000000016 01000000 01000000
         01 00 1800 02000000 0102000000000016 01000000 e8030000
         00 11 1800 01000000 0102000000000016 02000000 07000000
         00 00 2400 ff011f00 0105000000000005 15000000 01000000 02000000 03000000 50040000
         00 00 1400 20000000 0101000000000001 00000000");
    let descriptor = Descriptor::of(&sample(), &target(), &UnixIds);
    assert_eq!(descriptor.to_bytes(&UnixIds), Ok(golden.clone()));
    let read = Descriptor::from_bytes(&golden, &UnixIds).expect("a descriptor");
    assert_eq!(read.owner, Some(Sid::of_uid(1)));
    assert_eq!(read.acl(), Ok(Some(sample())));
}

#[test]
fn stored_bytes_are_few_and_have_one_form() {
    let stored = Stored::truth(sample(), 0o751);
    let golden = hex("4152 01 00 0500 e901 33068efe
         9f2d 00 00
         0240 00 04 e8030000
         0100 81 05 07000000
         ff3f 00 06 00000000
         2000 00 02
         00 1c 0105000000000005 15000000 01000000 02000000 03000000 50040000");
    let bytes = stored.to_bytes().expect("it is small");
    assert_eq!(bytes[..8], golden[..8]);
    assert_eq!(bytes[12..], golden[12..]);
    assert_eq!(bytes[8..12], golden[8..12], "{:02x?}", &bytes[8..12]);
    assert_eq!(Stored::from_bytes(&golden), Ok(stored));

    let mut unknown = golden.clone();
    unknown[2] = 2;
    assert_eq!(
        Stored::from_bytes(&unknown),
        Err(AclError::UnknownVersion(2))
    );
    for index in 0..golden.len() {
        for bit in 0..8 {
            let mut altered = golden.clone();
            altered[index] ^= 1 << bit;
            assert!(Stored::from_bytes(&altered).is_err(), "{index}.{bit}");
        }
        assert!(Stored::from_bytes(&golden[..index]).is_err(), "{index}");
    }
}

/// What is no form of a stored list: flags, count and mode, what follows, and why.
#[rustfmt::skip]
const NO_FORM: [(&str, &str, &str); 16] = [
    ("40 0100 8001", "ff3f 00 02", "a flag without a meaning"),
    ("20 0100 8001", "ff3f 00 02", "an unsettled list with a mode"),
    ("21 0100 0000", "0000000000000000 ff3f 00 02", "an unsettled view"),
    ("00 0100 8003", "ff3f 00 02", "a mode of more than nine bits"),
    ("00 0100 8001", "ffff 00 02", "an entry of a fourth kind"),
    ("00 0100 8001", "ff3f 40 02", "a flag without a meaning in an entry"),
    ("00 0100 8001", "ff3f 00 07", "a principal of an eighth kind"),
    ("00 0200 8001", "ff3f 00 02", "an entry that is missing"),
    ("00 0100 8001", "ff3f 00 02 01 01 61", "a name that nobody speaks of"),
    ("00 0100 8001", "ff3f 00 06 01000000 01 01 61", "a place that is not there"),
    ("00 0100 8001", "ff3f 00 06 00000000 01 00", "an empty name"),
    ("00 0200 8001", "0100 00 06 01000000 0100 00 06 00000000 010161 010162", "another order"),
    ("00 0200 8001", "0100 00 06 00000000 0100 00 06 01000000 010161 010161", "one name twice"),
    ("00 0100 8001", "ff3f 00 06 00000000 00 0c 010100000000000100000000", "everyone's SID"),
    ("10 0100 8001", "00fe0300 ff3f 00 02", "limits that limit nothing"),
    ("11 0100 8001", "00000008 0000000000000000 ff3f 00 02", "limits of a view"),
];

#[test]
fn a_stored_list_has_one_form() {
    // The checksum is right in all of them.
    let read = |head: &str, rest: &str| {
        let mut bytes = hex(&format!("4152 01 {head} 00000000 {rest}"));
        let sum = crc32c::crc32c(&bytes[..8]);
        let sum = crc32c::crc32c_append(sum, &bytes[12..]);
        bytes[8..12].copy_from_slice(&sum.to_le_bytes());
        Stored::from_bytes(&bytes)
    };
    for good in ["00 0100 8001", "0e 0100 8001"] {
        assert!(read(good, "ff3f 00 02").is_ok(), "{good}");
    }
    for (head, rest, why) in NO_FORM {
        assert!(read(head, rest).is_err(), "{why}");
    }
}

#[test]
fn a_stored_view_knows_what_it_shows() {
    let access = PosixAcl::from_xattr(&hex(
        "02000000 01000600 ffffffff 02000600 02000000 04000400 ffffffff
         10000600 ffffffff 20000000 ffffffff",
    ));
    let access = access.expect("valid").expect("entries");
    let file = PosixFile {
        uid: 1,
        gid: 10,
        mode: 0o660,
        access: Some(&access),
    };
    let source = Source::of(Some(&access), None);
    let view = RichAcl::view(&file, None, false);
    let stored = Stored::view(view, file.mode, source);
    let bytes = stored.to_bytes().expect("it is small");
    let golden = hex("4152 01 01 0400 b001 7631b6bc f4dde19c b2d0c720
         9f2d 00 00
         9f24 00 04 02000000
         8924 00 01
         8024 00 02");
    assert_eq!(bytes, golden, "{bytes:02x?}");
    let read = Stored::from_bytes(&bytes).expect("it was written");
    assert_eq!(read, stored);
    assert_eq!(read.acl().origin(), Origin::Posix);
    assert_eq!(read.source(), Some(source));
    let changed = access.with_mode(0o640);
    assert_ne!(Source::of(Some(&changed), None), source);
    assert_ne!(Source::of(None, Some(&access)), source);
}

#[test]
fn an_owners_entry_is_his_sid_now_and_creator_owner_for_heirs() {
    let heirs = AceFlags::FILE_INHERIT.with(AceFlags::DIRECTORY_INHERIT);
    let both = Ace {
        flags: heirs,
        ..Ace::allow(Who::Owner, Rights::READ_DATA)
    };
    let list = RichAcl::new(vec![both.clone()]).expect("a list");
    let bytes = Descriptor::of(&list, &target(), &UnixIds).to_bytes(&UnixIds);
    let read = Descriptor::from_bytes(&bytes.expect("small"), &UnixIds).expect("a descriptor");
    let here = Ace {
        flags: AceFlags::NONE,
        ..both.clone()
    };
    let heir = Ace {
        flags: heirs.with(AceFlags::INHERIT_ONLY),
        ..both
    };
    assert_eq!(read.access, Some(vec![here, heir]));
}

#[test]
fn an_unknown_principal_is_kept_and_is_never_everyone() {
    let value = hex("00000002
         00000000 00000000 00000001 00000008 626f6240 782e6f72
         00000001 00000040 00000001 00000005 73746166 66000000");
    let read = RichAcl::from_nfs4(&value, &UnixIds).expect("a list");
    let unknown = |name: &str, is_group| Who::Name {
        name: name.into(),
        is_group,
    };
    assert_eq!(read.aces()[0].who, unknown("bob@x.or", false));
    assert_eq!(read.aces()[1].who, unknown("staff", true));
    assert_eq!(read.to_nfs4(&target(), &UnixIds), Ok(value.clone()));
    let descriptor = Descriptor::of(&read, &target(), &UnixIds);
    assert!(descriptor.to_bytes(&UnixIds).is_err());

    let mut table = IdentityTable::default();
    assert!(table.add_name(Id::Group(12), "staff"));
    assert!(
        !table.add_name(Id::Group(13), "staff"),
        "a name is one group's"
    );
    for special in ["EVERYONE@", "7", "S-1-1-0"] {
        assert!(!table.add_name(Id::User(5), special), "{special}");
    }
    assert!(!table.add_sid(Id::User(5), Sid::everyone()));
    assert!(!table.add_sid(Id::User(5), Sid::of_uid(6)));
    let read = RichAcl::from_nfs4(&value, &table).expect("a list");
    assert_eq!(read.aces()[1].who, Who::Group(12));
    assert_eq!(read.to_nfs4(&target(), &table), Ok(value));
    assert_eq!(table.sid(Id::Group(12)), Sid::of_gid(12));
}

#[test]
fn no_list_is_everything_and_an_empty_list_is_nothing() {
    let no_list = hex("01000480 00000000 00000000 00000000 00000000");
    let read = Descriptor::from_bytes(&no_list, &UnixIds).expect("a descriptor");
    let everything = vec![Ace::allow(Who::Everyone, Rights::ALL)];
    assert_eq!(read.access, Some(everything));
    let empty = hex("01000480 00000000 00000000 00000000 14000000 02000800 00000000");
    let read = Descriptor::from_bytes(&empty, &UnixIds).expect("a descriptor");
    assert_eq!(read.access, Some(Vec::new()));
    let unchanged = hex("01000080 00000000 00000000 00000000 00000000");
    let read = Descriptor::from_bytes(&unchanged, &UnixIds).expect("a descriptor");
    assert_eq!(read.acl(), Ok(None));
}

#[test]
fn generic_rights_are_what_they_mean() {
    let list = |mask: &str| {
        let text = format!(
            "01000480 00000000 00000000 00000000 14000000 02001c00 01000000
             00001400 {mask} 0101000000000001 00000000"
        );
        Descriptor::from_bytes(&hex(&text), &UnixIds)
    };
    let rights = |mask| list(mask).expect("a descriptor").access.expect("a list")[0].rights;
    assert_eq!(rights("00000010"), Rights::ALL);
    assert_eq!(rights("00000080").bits(), 0x12_0089);
    assert_eq!(rights("02000020").bits(), 0x12_00a2);
    assert!(list("00000002").is_err(), "as much as possible is no right");
}

#[test]
fn what_is_not_understood_is_refused() {
    let good = sample().to_nfs4(&target(), &UnixIds).expect("small");
    // Kind, flags, rights and length of the first entry, padding, the count.
    for (offset, byte) in [
        (7, 3),
        (7, 4),
        (10, 1),
        (12, 1),
        (18, 1),
        (19, 7),
        (26, 1),
        (3, 6),
    ] {
        let mut altered = good.clone();
        altered[offset] = byte;
        assert!(RichAcl::from_nfs4(&altered, &UnixIds).is_err(), "{offset}");
    }
    for end in 0..good.len() {
        assert!(RichAcl::from_nfs4(&good[..end], &UnixIds).is_err(), "{end}");
    }
    assert!(RichAcl::from_nfs4(&[good, vec![0; 4]].concat(), &UnixIds).is_err());
    // A count that no bytes stand for takes no memory.
    assert!(RichAcl::from_nfs4(&[255, 255, 255, 255], &UnixIds).is_err());
    let creator = hex("00000001 00000001 00000000 00000001 00000007 532d312d 332d3000");
    assert!(RichAcl::from_nfs4(&creator, &UnixIds).is_err());
}

#[test]
fn what_does_not_fit_is_refused() {
    let aces = (0..9000).map(|uid| Ace::allow(Who::User(uid), Rights::READ_DATA));
    let list = RichAcl::new(aces.collect()).expect("a list");
    let too_large = |error| matches!(error, Err(AclError::TooLarge { .. }));
    assert!(too_large(list.to_nfs4(&target(), &UnixIds)));
    assert!(too_large(
        Descriptor::of(&list, &target(), &UnixIds).to_bytes(&UnixIds)
    ));
    assert!(too_large(Stored::truth(list, 0o600).to_bytes()));
    let large = vec![0; 65_537];
    assert!(too_large(
        RichAcl::from_nfs4(&large, &UnixIds).map(|_| Vec::new())
    ));
    assert!(too_large(Stored::from_bytes(&large).map(|_| Vec::new())));
    assert!(too_large(
        Descriptor::from_bytes(&large, &UnixIds).map(|_| Vec::new())
    ));
}

fn audits_behind(list: &RichAcl) -> Vec<Ace> {
    let (audit, access): (Vec<_>, Vec<_>) = list
        .aces()
        .iter()
        .cloned()
        .partition(|ace| ace.kind == AceKind::Audit);
    [access, audit].concat()
}

proptest! {
    #[test]
    fn a_list_is_itself_again_behind_nfs4(list in any_list()) {
        let value = list.to_nfs4(&target(), &UnixIds).expect("small");
        prop_assert_eq!(RichAcl::from_nfs4(&value, &UnixIds), Ok(list));
    }

    #[test]
    fn a_list_is_itself_again_when_it_was_stored(
        list in any_list(),
        mode in 0..0o1000_u16,
        chmod in prop::option::of(0..0o1000_u16),
        control in any::<[bool; 3]>(),
    ) {
        let [auto_inherited, protected, defaulted] = control;
        let list = list.with_control(Control { auto_inherited, protected, defaulted });
        let list = chmod.map_or(list.clone(), |chmod| list.with_mode(chmod, &target()));
        let stored = Stored::truth(list, mode);
        let bytes = stored.to_bytes().expect("small");
        prop_assert_eq!(Stored::from_bytes(&bytes), Ok(stored.clone()));
        let names = lists::unknown_bytes(stored.acl());
        prop_assert!(bytes.len() <= 16 + 8 * stored.acl().aces().len() + names);
    }

    /// Once it has been there, a list stays as it is on the way to Windows and back.
    #[test]
    fn a_list_decides_the_same_behind_windows(list in any_list()) {
        let there = Descriptor::of(&list, &target(), &UnixIds);
        let Ok(bytes) = there.to_bytes(&UnixIds) else {
            let has_no_sid = |ace: &Ace| matches!(ace.who, Who::Name { .. });
            prop_assert!(list.aces().iter().any(has_no_sid));
            return Ok(());
        };
        let back = Descriptor::from_bytes(&bytes, &UnixIds).expect("it was written");
        let back = back.acl().expect("small").expect("a list");
        lists::decide_alike(&list, &back, &target())?;
        let again = Descriptor::of(&back, &target(), &UnixIds).to_bytes(&UnixIds).expect("small");
        let again = Descriptor::from_bytes(&again, &UnixIds).expect("it was written");
        prop_assert_eq!(audits_behind(&again.acl().expect("small").expect("a list")), back.aces());
    }

    #[test]
    fn no_bytes_do_harm(
        list in any_list(),
        form in 0..3_u8,
        cut in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let bytes = match form {
            0 => list.to_nfs4(&target(), &UnixIds),
            1 => Descriptor::of(&list, &target(), &UnixIds).to_bytes(&UnixIds),
            _ => Stored::truth(list, 0o644).to_bytes(),
        };
        let mut bytes = bytes.unwrap_or_default();
        bytes.truncate(cut.index(bytes.len() + 1));
        for (place, byte) in changes {
            if !bytes.is_empty() {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
        }
        if let Ok(read) = RichAcl::from_nfs4(&bytes, &UnixIds) {
            let again = read.to_nfs4(&target(), &UnixIds).expect("it came from as much");
            prop_assert_eq!(RichAcl::from_nfs4(&again, &UnixIds), Ok(read));
        }
        if let Ok(read) = Descriptor::from_bytes(&bytes, &UnixIds)
            && let Ok(again) = read.to_bytes(&UnixIds)
        {
            prop_assert!(Descriptor::from_bytes(&again, &UnixIds).is_ok());
        }
        if let Ok(read) = Stored::from_bytes(&bytes) {
            prop_assert_eq!(read.to_bytes(), Ok(bytes));
        }
    }
}
