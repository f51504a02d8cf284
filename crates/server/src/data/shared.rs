//! The lists of a cluster that has several managers: entries of its metadata engine.
//!
//! What a manager that is alone keeps in state files is one entry for each line of a list here, so
//! that whoever takes the seat goes on with it. Only the holder of the seat changes the lists, but
//! for the entry by which each manager makes itself known. Drawn in `docs/formats/server-data.md`.
//!
//! The engine belongs to somebody else and is reached over the network, perhaps in the clear. So
//! entries are sealed: among them are the keys under which tickets are issued. Who can write there
//! can take entries away, or put older ones back; he cannot read them, make some up, or put one in
//! another one's place.

use super::{DataError, random};
use meta::{Engine, KeyRange, Leadership, MetaError, Transaction};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle as Runtime;

/// Format of the entries, their first byte.
pub(crate) const SHARED_FORMAT_VERSION: u8 = 1;
/// How keys of lists begin.
const LISTS: &[u8] = b"l/";
/// Changes of one transaction.
const CHANGES_MAX: usize = 100;
/// Entries that are read at once.
const PAGE_ENTRIES: usize = 1000;
/// How long to wait before asking again what became of a transaction.
const OUTCOME_INTERVAL: Duration = Duration::from_millis(200);
/// For what the managers' common secret is used here.
const CONTEXT: &str = "azekura 2026-11 lists of a cluster";

/// A way to close entries and to open them.
#[derive(Clone)]
pub(crate) struct ListSeal(Arc<LessSafeKey>);

impl ListSeal {
    /// By the secret that all managers have.
    pub(crate) fn new(secret: &[u8; 32]) -> Self {
        let key = blake3::derive_key(CONTEXT, secret);
        let key = UnboundKey::new(&AES_256_GCM, &key).expect("the key has the right length");
        Self(Arc::new(LessSafeKey::new(key)))
    }

    pub(crate) fn close(&self, key: &[u8], plain: &[u8]) -> Vec<u8> {
        let nonce: [u8; NONCE_LEN] = random();
        let mut sealed = plain.to_vec();
        let number = Nonce::assume_unique_for_key(nonce);
        self.0
            .seal_in_place_append_tag(number, Aad::from(key), &mut sealed)
            .expect("an entry is far below the cipher's bound");
        [&[SHARED_FORMAT_VERSION][..], &nonce, &sealed].concat()
    }

    fn open(&self, key: &[u8], value: &[u8]) -> Result<Vec<u8>, DataError> {
        let shown = || String::from_utf8_lossy(key).into_owned();
        let damaged = || DataError::Entry(shown());
        let (format, rest) = value.split_first().ok_or_else(damaged)?;
        match *format {
            SHARED_FORMAT_VERSION => {}
            0 => return Err(damaged()),
            _ => return Err(DataError::NewerEntry(shown())),
        }
        let (nonce, sealed) = rest.split_first_chunk().ok_or_else(damaged)?;
        let mut plain = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = self.0.open_in_place(nonce, Aad::from(key), &mut plain);
        let length = opened.map_err(|_| damaged())?.len();
        plain.truncate(length);
        Ok(plain)
    }
}

/// The key of an entry.
pub(crate) fn key(list: &str, name: &str) -> Vec<u8> {
    [LISTS, list.as_bytes(), b"/", name.as_bytes()].concat()
}

/// All entries of a list by their keys.
///
/// # Errors
/// [`DataError`].
pub(crate) async fn read(
    engine: &dyn Engine,
    seal: &ListSeal,
    list: &str,
) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, DataError> {
    let mut range = KeyRange::prefix(key(list, ""));
    let (mut all, mut at) = (BTreeMap::new(), None);
    loop {
        let page = engine.range(&range, PAGE_ENTRIES, at).await?;
        at = Some(page.revision);
        if let Some(last) = page.entries.last() {
            range = range.after(&last.key);
        }
        for entry in page.entries {
            let plain = seal.open(&entry.key, &entry.value)?;
            all.insert(entry.key, plain);
        }
        if !page.has_more {
            return Ok(all);
        }
    }
}

/// Writes one entry, whoever has the seat; for what concerns nobody else.
///
/// # Errors
/// [`DataError`].
pub(crate) async fn write_own(
    engine: &dyn Engine,
    seal: &ListSeal,
    (list, name): (&str, &str),
    plain: &[u8],
) -> Result<(), DataError> {
    let key = key(list, name);
    let value = seal.close(&key, plain);
    commit(engine, Transaction::new().put(key, value), || true).await
}

/// Carries a transaction out, and finds out whether that was done as long as `goes_on`.
pub(crate) async fn commit(
    engine: &dyn Engine,
    transaction: Transaction,
    goes_on: impl Fn() -> bool,
) -> Result<(), DataError> {
    let mut outcome = engine.commit(transaction).await;
    loop {
        match outcome {
            Ok(_) => return Ok(()),
            Err(MetaError::Unknown(id)) if goes_on() => {
                tokio::time::sleep(OUTCOME_INTERVAL).await;
                outcome = engine.outcome(id).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// The lists, for the holder of the seat.
pub(crate) struct Shared {
    engine: Arc<dyn Engine>,
    seat: Arc<Leadership>,
    seal: ListSeal,
    runtime: Runtime,
    /// What is there.
    known: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
}

impl Shared {
    pub(crate) fn new(
        engine: Arc<dyn Engine>,
        seat: Arc<Leadership>,
        seal: ListSeal,
        runtime: Runtime,
    ) -> Self {
        Self {
            engine,
            seat,
            seal,
            runtime,
            known: Mutex::default(),
        }
    }

    /// All entries of a list. Blocks; not within a task.
    ///
    /// # Errors
    /// [`DataError`].
    pub(crate) fn read(&self, list: &str) -> Result<Vec<Vec<u8>>, DataError> {
        let reading = read(&*self.engine, &self.seal, list);
        let entries = self.runtime.block_on(reading)?;
        let values = entries.values().cloned().collect();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.extend(entries);
        Ok(values)
    }

    /// Makes a list these entries, by their names. Durable when it returns; of many changes some
    /// may be made if there is an error. Blocks; not within a task.
    ///
    /// # Errors
    /// [`DataError`].
    pub(crate) fn write(
        &self,
        list: &str,
        entries: impl Iterator<Item = (String, Vec<u8>)>,
    ) -> Result<(), DataError> {
        let wanted: BTreeMap<_, _> = entries
            .map(|(name, plain)| (key(list, &name), plain))
            .collect();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (all, start) = (KeyRange::prefix(key(list, "")), key(list, ""));
        let there = known.range(start..).map(|(key, _)| key);
        let gone = there.take_while(|key| all.contains(key));
        let gone = gone.filter(|key| !wanted.contains_key(*key)).cloned();
        let mut changes: Vec<(Vec<u8>, Option<Vec<u8>>)> = gone.map(|key| (key, None)).collect();
        let new = wanted.into_iter();
        let new = new.filter(|(key, plain)| known.get(key) != Some(plain));
        changes.extend(new.map(|(key, plain)| (key, Some(plain))));
        for changes in changes.chunks(CHANGES_MAX) {
            let mut transaction = Transaction::new().guarded_by(&self.seat);
            for (key, plain) in changes {
                transaction = match plain {
                    Some(plain) => transaction.put(key.clone(), self.seal.close(key, plain)),
                    None => transaction.delete(key.clone()),
                };
            }
            let seat = &self.seat;
            let committing = commit(&*self.engine, transaction, || seat.is_trusted());
            self.runtime.block_on(committing)?;
            for (key, plain) in changes {
                match plain {
                    Some(plain) => known.insert(key.clone(), plain.clone()),
                    None => known.remove(key),
                };
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meta::{Embedded, campaign};

    #[test]
    fn an_entry_opens_in_its_own_place_alone() {
        let seal = ListSeal::new(&[7; 32]);
        let closed = seal.close(b"l/volumes/a", b"secret");
        assert!(!closed.windows(6).any(|part| part == b"secret"));
        assert_eq!(seal.open(b"l/volumes/a", &closed).unwrap(), b"secret");
        assert!(seal.open(b"l/volumes/b", &closed).is_err());
        assert!(
            ListSeal::new(&[8; 32])
                .open(b"l/volumes/a", &closed)
                .is_err()
        );
        for at in 0..closed.len() {
            let mut other = closed.clone();
            other[at] ^= 1;
            assert!(seal.open(b"l/volumes/a", &other).is_err(), "byte {at}");
        }
        assert!(
            seal.open(b"l/volumes/a", &closed[..closed.len() - 1])
                .is_err()
        );
        assert!(seal.open(b"l/volumes/a", &[]).is_err());
    }

    #[test]
    fn a_list_is_what_was_written_last_and_nobody_deposed_changes_it() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("meta.redb");
        let engine: Arc<dyn Engine> = runtime.block_on(Embedded::open(path)).unwrap();
        let seal = ListSeal::new(&[7; 32]);
        let lead = |holder: &str| {
            let limit = Duration::from_secs(5);
            let seat = runtime.block_on(campaign(&*engine, "lists", holder, limit));
            let seat = Arc::new(seat.unwrap());
            let runtime = runtime.handle().clone();
            let shared = Shared::new(engine.clone(), seat.clone(), seal.clone(), runtime);
            (shared, seat)
        };
        let entries = |names: &[&str]| {
            let entry = |name: &&str| ((*name).to_owned(), name.as_bytes().to_vec());
            names.iter().map(entry).collect::<Vec<_>>().into_iter()
        };
        let (one, seat) = lead("one");
        let many: Vec<String> = (0..250).map(|name| format!("{name:03}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        one.write("a", entries(&many)).unwrap();
        one.write("ab", entries(&["x"])).unwrap();
        assert_eq!(one.read("a").unwrap().len(), 250);
        one.write("a", entries(&["000", "new"])).unwrap();
        let deposing = engine.depose("lists", seat.epoch());
        runtime.block_on(deposing).unwrap();
        let (other, _seat) = lead("other");
        assert!(one.write("a", entries(&["stale"])).is_err());
        assert_eq!(other.read("a").unwrap(), [b"000".to_vec(), b"new".to_vec()]);
        assert_eq!(other.read("ab").unwrap(), [b"x".to_vec()]);
    }
}
