//! Index files: golden bytes, every kind of damage, and look-ups beside a naive search.

use super::*;
use expect_test::expect;
use proptest::prelude::*;

fn golden() -> Index {
    let digest = Digest::Sha512Half;
    let chunks = [
        (65536, digest.id_of(&[0; 65536])),
        (70000, digest.id_of(b"b")),
    ];
    Index::new(digest, ChunkSizes::fixed(65536), chunks).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    let line = |line: &[u8]| -> String { line.iter().map(|byte| format!("{byte:02x}")).collect() };
    bytes.chunks(16).map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn an_index_has_the_bytes_that_it_had() {
    let index = golden();
    let bytes = index.to_bytes();
    expect![[r#"
        3000000000000000f99f127b9c4d8296
        00000000000000a00000010000000000
        00000100000000000000010000000000
        ffffffffffffffff7d41172f119e5be7
        00000100000000007f40d757cf2f63d4
        f32bd5b802f7bf2bafeb3d38f5f38e43
        6ab8828f814f7d8e7011010000000000
        6edcf3ed1ef5632429a51f941d42ccfd
        1d3407671a2ac939eb5361a0f576ff8f
        00000000000000000000000000000000
        30000000000000008800000000000000
        d1ec49550e054f4b"#]]
    .assert_eq(&hex(&bytes));
    assert_eq!(Index::from_bytes(&bytes), Ok(index));
}

#[test]
fn the_digest_is_in_the_flags() {
    let sha256 = Index::new(
        Digest::Sha256,
        ChunkSizes::fixed(512),
        [(1, Digest::Sha256.id_of(b"a"))],
    );
    let bytes = sha256.unwrap().to_bytes();
    assert_eq!(number(&bytes, 16), 0x8000_0000_0000_0000);
    assert_eq!(
        Index::from_bytes(&bytes).map(|index| index.digest()),
        Ok(Digest::Sha256)
    );
    assert_eq!(number(&golden().to_bytes(), 16), 0xa000_0000_0000_0000);
}

#[test]
fn an_empty_image_has_an_index() {
    let empty = Index::new(Digest::Sha256, ChunkSizes::fixed(65536), []).unwrap();
    assert_eq!(empty.image_bytes(), 0);
    assert_eq!(empty.to_bytes().len() as u64, Index::file_bytes(0));
    assert_eq!(Index::from_bytes(&empty.to_bytes()), Ok(empty.clone()));
    assert_eq!(empty.chunks_of(Extent::new(0, 100)), 0..0);
}

#[test]
fn what_is_wrong_with_a_file_is_said() {
    let good = golden().to_bytes();
    let with = |at: usize, number: u64| {
        let mut bytes = good.clone();
        bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        Index::from_bytes(&bytes).unwrap_err()
    };
    let frame = Damage::Index("its frame");
    let end = Damage::Index("a chunk's end");
    let sizes = Damage::Index("chunk sizes");
    assert_eq!(Index::from_bytes(b""), Err(Damage::NotAnIndex));
    assert_eq!(Index::from_bytes(&good[..103]), Err(Damage::NotAnIndex));
    assert_eq!(with(8, 7), Damage::NotAnIndex);
    for at in [0, 48, 56, good.len() - 8, good.len() - 16, good.len() - 24] {
        assert_eq!(with(at, 7), frame, "at {at}");
    }
    assert_eq!(Index::from_bytes(&good[..good.len() - 1]), Err(frame));
    assert_eq!(with(24, 0), sizes, "no least length");
    assert_eq!(with(24, 65537), sizes, "the least above the others");
    assert_eq!(with(40, 1 << 32), sizes, "a length of 4 GiB");
    let four_gib = Damage::ChunkTooLong(u64::from(u32::MAX));
    assert_eq!(with(40, u32::MAX.into()), four_gib);
    assert_eq!(with(64, 0), end, "an empty chunk");
    assert_eq!(with(64, 65537), end, "a chunk above the bound");
    assert_eq!(with(104, 65536), end, "two chunks that end at one place");
    assert_eq!(with(104, 1), end, "a chunk that ends before it begins");
    assert_eq!(with(64, u64::MAX), end, "beyond every image");
}

fn indexes() -> impl Strategy<Value = Index> {
    let lengths = prop::collection::vec(1_u64..=100, 0..40);
    lengths.prop_map(|lengths| {
        let mut end = 0;
        let chunks = lengths.iter().map(|length| {
            end += length;
            (end, Digest::Sha256.id_of(&end.to_le_bytes()))
        });
        Index::new(Digest::Sha256, ChunkSizes::fixed(100), chunks).unwrap()
    })
}

proptest! {
    #[test]
    fn what_was_written_is_read_and_any_change_is_another_index_or_none(
        index in indexes(),
        at in any::<prop::sample::Index>(),
        bit in 0_u32..8,
    ) {
        let mut bytes = index.to_bytes();
        prop_assert_eq!(bytes.len() as u64, Index::file_bytes(index.chunk_count()));
        prop_assert_eq!(Index::from_bytes(&bytes).unwrap(), index);
        let at = at.index(bytes.len());
        prop_assert!(Index::from_bytes(&bytes[..at]).is_err());
        bytes[at] ^= 1_u8 << bit;
        if let Ok(other) = Index::from_bytes(&bytes) {
            // Flags that say nothing of images are not kept; everything else is.
            prop_assert!((16..24).contains(&at) || other.to_bytes() == bytes);
        }
    }

    #[test]
    fn look_ups_find_what_a_search_of_all_chunks_finds(
        index in indexes(),
        offset in 0_u64..4200,
        len in 0_u64..500,
    ) {
        let extent = Extent::new(offset, len);
        let naive: Vec<_> = (0..index.chunk_count())
            .filter(|&number| index.chunk(number).extent.overlaps(extent))
            .collect();
        let found = index.chunks_of(extent);
        prop_assert_eq!(found.clone().collect::<Vec<_>>(), naive, "{:?}", found);
        let total: u64 = index.chunks().map(|chunk| chunk.extent.len).sum();
        prop_assert_eq!(total, index.image_bytes());
    }
}
