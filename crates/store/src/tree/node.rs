//! A page of the tree, decoded: records in a leaf, pointers to pages in an inner node.
//!
//! ```text
//! 0  1  level: 0 in a leaf
//! 1  1  zero
//! 2  2  number of items
//! 4  -  items: key (postcard), then in a leaf the length of the contents (2) and the contents,
//!       in an inner node page (8) and checksum (4) of the child whose least key this is
//! ```
//! The checksum of a page is with the pointer to it.

use crate::key::{Key, VALUE_BYTES_MAX, Value};
use crate::layout::PAGE_BYTES;
use crate::pages::Pointer;

const PAGE: usize = PAGE_BYTES as usize;
const HEADER_BYTES: usize = 4;
/// What a page has room for.
pub(crate) const ROOM_BYTES: usize = PAGE - HEADER_BYTES;

/// What a key leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    Record(Value),
    Child(Pointer),
}

/// A key and what it leads to.
pub(crate) type Item = (Key, Payload);

/// A page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) level: u8,
    pub(crate) items: Vec<Item>,
}

/// Bytes that an item takes in a page.
pub(crate) fn item_len((key, payload): &Item) -> usize {
    key.encoded_len()
        + match payload {
            Payload::Record(value) => 2 + value.len(),
            Payload::Child(_) => 12,
        }
}

/// Writes a page.
pub(crate) fn encode(level: u8, items: &[Item]) -> Vec<u8> {
    let mut page = Vec::with_capacity(PAGE);
    page.extend_from_slice(&[level, 0]);
    let count = u16::try_from(items.len()).expect("an item takes more than a byte");
    page.extend_from_slice(&count.to_le_bytes());
    for (key, payload) in items {
        key.encode_into(&mut page);
        match payload {
            Payload::Record(value) => {
                let len = u16::try_from(value.len()).expect("less than a page");
                page.extend_from_slice(&len.to_le_bytes());
                page.extend_from_slice(value);
            }
            Payload::Child(child) => {
                page.extend_from_slice(&child.page.to_le_bytes());
                page.extend_from_slice(&child.crc.to_le_bytes());
            }
        }
    }
    assert!(page.len() <= PAGE, "items were cut to pages before");
    page.resize(PAGE, 0);
    page
}

/// Reads a page; `None` if these bytes are none.
pub(crate) fn decode(page: &[u8]) -> Option<Node> {
    let (header, mut rest) = page.split_at_checked(HEADER_BYTES)?;
    let level = header[0];
    let count = u16::from_le_bytes([header[2], header[3]]);
    let mut items: Vec<Item> = Vec::new();
    for _ in 0..count {
        let (key, after) = Key::take(rest)?;
        if items.last().is_some_and(|(before, _)| *before >= key) {
            return None;
        }
        let payload = if level == 0 {
            let (len, after) = after.split_first_chunk::<2>()?;
            let len = usize::from(u16::from_le_bytes(*len));
            let (value, after) = after.split_at_checked(len)?;
            if len > VALUE_BYTES_MAX {
                return None;
            }
            rest = after;
            Payload::Record(value.into())
        } else {
            let (page, after) = after.split_first_chunk::<8>()?;
            let (crc, after) = after.split_first_chunk::<4>()?;
            rest = after;
            Payload::Child(Pointer {
                page: u64::from_le_bytes(*page),
                crc: u32::from_le_bytes(*crc),
            })
        };
        items.push((key, payload));
    }
    Some(Node { level, items })
}

/// Cuts items into as few pages as hold them, of about the same size.
pub(crate) fn cut(items: Vec<Item>) -> Vec<Vec<Item>> {
    let total: usize = items.iter().map(item_len).sum();
    let target = total.div_ceil(total.div_ceil(ROOM_BYTES).max(1));
    let mut pages = Vec::new();
    let (mut page, mut page_len, mut rest) = (Vec::new(), 0, total);
    for item in items {
        let len = item_len(&item);
        // The item that passes the target still belongs here, if the page has room for it; so does
        // all the rest.
        let is_enough = page_len >= target && page_len + rest > ROOM_BYTES;
        rest -= len;
        if !page.is_empty() && (is_enough || page_len + len > ROOM_BYTES) {
            pages.push(std::mem::take(&mut page));
            page_len = 0;
        }
        page_len += len;
        page.push(item);
    }
    pages.extend((!page.is_empty()).then_some(page));
    pages
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KEY_BYTES_MAX;
    use proptest::prelude::*;

    fn record(number: u32, len: usize) -> Item {
        (Key::Au(number), Payload::Record(vec![7; len].into()))
    }

    #[test]
    fn the_bytes_are_those_of_the_format() {
        let page = encode(0, &[record(5, 2)]);
        assert_eq!(page[..11], [0, 0, 1, 0, 3, 5, 2, 0, 7, 7, 0]);
        let child = Pointer { page: 9, crc: 1 };
        let page = encode(1, &[(Key::Au(5), Payload::Child(child))]);
        assert_eq!(page[..6], [1, 0, 1, 0, 3, 5]);
        assert_eq!(page[6..18], [9, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    }

    #[test]
    fn three_of_the_largest_records_fit() {
        let key = Key::Attribute(u64::MAX, vec![1; crate::key::ATTRIBUTE_NAME_BYTES_MAX]);
        assert!(key.encoded_len() <= KEY_BYTES_MAX);
        let largest = (key, Payload::Record(vec![1; VALUE_BYTES_MAX].into()));
        assert!(3 * item_len(&largest) <= ROOM_BYTES);
    }

    proptest! {
        #[test]
        fn what_is_cut_fits_and_is_complete(
            lens in prop::collection::vec(0..=VALUE_BYTES_MAX, 0..60)
        ) {
            let items: Vec<Item> =
                lens.iter().zip(0..).map(|(len, number)| record(number, *len)).collect();
            let pages = cut(items.clone());
            for page in &pages {
                let node = decode(&encode(0, page)).unwrap();
                prop_assert_eq!(&node.items, page);
            }
            prop_assert_eq!(pages.concat(), items);
        }

        #[test]
        fn no_bytes_make_it_panic(page in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode(&page);
        }
    }
}
