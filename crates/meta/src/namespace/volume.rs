//! A volume in its engine: making it, reading what a manager begins with, the stores it lies in.

use super::error::NamespaceError;
use super::key::{self, Keys};
use super::layout::Target;
use super::record::{
    Constants, Content, Head, Inode, NAMESPACE_FORMAT_VERSION, OLDEST_FORMAT_VERSION, Outcome,
    ROOT, decode, decode_target, encode, request, timestamp,
};
use super::rich::EditCounts;
use crate::{Condition, Engine, Entry, KeyRange, Leadership, MetaError, Transaction};
use base::limits::{
    META_OPERATIONS_MAX, META_PAGE_ENTRIES_MAX, NAMESPACE_TARGETS_MAX, VOLUMES_MAX,
};
use base::{FileKind, RequestId, SessionId, Timestamp, VolumeId};
use ring::rand::{SecureRandom, SystemRandom};
use std::collections::BTreeMap;

const MODE_OF_TOP: u16 = 0o755;
const SESSION_BYTES: usize = 16;

/// What a manager begins with.
pub(super) struct Loaded {
    /// The last batch.
    pub(super) batch: u64,
    pub(super) head: Head,
    pub(super) outcomes: BTreeMap<(SessionId, RequestId), Outcome>,
    pub(super) edits: EditCounts,
}

pub(super) fn random<const N: usize>() -> Result<[u8; N], MetaError> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| MetaError::Unavailable("no random numbers to be had".to_owned()))?;
    Ok(bytes)
}

/// All entries of a range, page by page.
pub(super) async fn entries(
    engine: &dyn Engine,
    range: &KeyRange,
    mut each: impl FnMut(Entry) -> Result<(), MetaError>,
) -> Result<(), MetaError> {
    let (mut rest, mut at) = (range.clone(), None);
    loop {
        let page = engine.range(&rest, META_PAGE_ENTRIES_MAX, at).await?;
        at = Some(page.revision);
        if let Some(last) = page.entries.last() {
            rest = rest.after(&last.key);
        }
        page.entries.into_iter().try_for_each(&mut each)?;
        if !page.has_more {
            return Ok(());
        }
    }
}

fn number(value: &[u8]) -> Result<u32, MetaError> {
    decode("the number of a volume", value)
}

/// Makes an empty namespace: a top directory that belongs to `uid` and `gid`.
///
/// # Errors
/// [`NamespaceError::Exists`]; [`NamespaceError::Full`]; what the engine says.
pub async fn make(
    engine: &dyn Engine,
    volume: VolumeId,
    (uid, gid): (u32, u32),
    now: Timestamp,
) -> Result<(), NamespaceError> {
    let catalogued = Keys::volume(volume);
    let mut numbers = Vec::new();
    entries(engine, &Keys::volumes(), |entry| {
        numbers.push(number(&entry.value)?);
        match entry.key == catalogued {
            true => Err(MetaError::Invalid("the volume exists")),
            false => Ok(()),
        }
    })
    .await
    .map_err(|error| match error {
        MetaError::Invalid(_) => NamespaceError::Exists(volume),
        other => other.into(),
    })?;
    if numbers.len() >= VOLUMES_MAX {
        return Err(NamespaceError::Full("volumes"));
    }
    let number = numbers.into_iter().max().unwrap_or(0) + 1;
    let keys = Keys { number };
    let constants = Constants {
        version: NAMESPACE_FORMAT_VERSION,
        volume,
        hash_key: random()?,
    };
    let top = Inode {
        number: ROOT,
        generation: u32::from_le_bytes(random()?),
        kind: FileKind::Directory,
        mode: MODE_OF_TOP,
        links: 2,
        uid,
        gid,
        accessed: now,
        modified: now,
        changed: now,
        created: now,
        has_xattrs: false,
        access: None,
        default: None,
        rich: None,
        content: Content::Directory(0),
        space: None,
        appends: None,
    };
    let top = top.own_entry();
    let making = Transaction::new()
        .when(Condition::Absent(catalogued.clone()))
        .when(Condition::Empty(keys.whole()))
        .put(catalogued, encode(&number))
        .put(keys.constants(), encode(&constants))
        .put(keys.inode(ROOT), top)
        .put(keys.head(0), encode(&Head::default()));
    engine.commit(making).await?;
    Ok(())
}

/// Takes everything of a volume away that nobody has open, as the holder of a seat.
///
/// # Errors
/// What the engine says; some of it may be gone then, and the rest can be removed again.
pub async fn remove(
    engine: &dyn Engine,
    seat: &Leadership,
    volume: VolumeId,
) -> Result<(), NamespaceError> {
    let catalogued = Keys::volume(volume);
    let (entry, _) = engine.get(&catalogued).await?;
    let Some(entry) = entry else {
        return Ok(());
    };
    let whole = Keys {
        number: number(&entry.value)?,
    };
    let whole = whole.whole();
    loop {
        let page = engine.range(&whole, META_OPERATIONS_MAX - 1, None).await?;
        let mut removing = Transaction::new().guarded_by(seat);
        if page.entries.is_empty() {
            // Last: whoever is interrupted finds the rest by it.
            engine.commit(removing.delete(&catalogued)).await?;
            return Ok(());
        }
        for entry in &page.entries {
            removing = removing.delete(&entry.key);
        }
        engine.commit(removing).await?;
    }
}

/// The keys and constants of a volume.
pub(super) async fn find(
    engine: &dyn Engine,
    volume: VolumeId,
) -> Result<(Keys, Constants), NamespaceError> {
    let (entry, _) = engine.get(&Keys::volume(volume)).await?;
    let entry = entry.ok_or(NamespaceError::Unknown(volume))?;
    let keys = Keys {
        number: number(&entry.value)?,
    };
    let (entry, _) = engine.get(&keys.constants()).await?;
    let entry = entry.ok_or(NamespaceError::Unknown(volume))?;
    // The version comes first, whatever follows in a newer one.
    let version = postcard::take_from_bytes::<u64>(&entry.value).map(|(version, _)| version);
    match version {
        Ok(OLDEST_FORMAT_VERSION..=NAMESPACE_FORMAT_VERSION) => {}
        Ok(found) => {
            return Err(MetaError::Newer {
                found,
                known: NAMESPACE_FORMAT_VERSION,
            }
            .into());
        }
        Err(_) => return Err(MetaError::Damaged("a volume has no version".to_owned()).into()),
    }
    let constants: Constants = decode("a volume", &entry.value)?;
    match constants.volume == volume {
        true => Ok((keys, constants)),
        false => Err(MetaError::Damaged("a number leads to another volume".to_owned()).into()),
    }
}

/// Has an older release refuse a volume from now on that this one has opened.
///
/// # Errors
/// What the engine says.
pub(super) async fn note_version(
    engine: &dyn Engine,
    seat: &Leadership,
    (keys, constants): (Keys, Constants),
) -> Result<Constants, MetaError> {
    if constants.version == NAMESPACE_FORMAT_VERSION {
        return Ok(constants);
    }
    let constants = Constants {
        version: NAMESPACE_FORMAT_VERSION,
        ..constants
    };
    let noting = Transaction::new().guarded_by(seat);
    let noting = noting.put(keys.constants(), encode(&constants));
    engine.commit(noting).await?;
    Ok(constants)
}

/// Reads what a manager begins with, from one state.
pub(super) async fn load(engine: &dyn Engine, keys: Keys) -> Result<Loaded, MetaError> {
    let mut heads = Vec::new();
    entries(engine, &keys.all(b'h'), |entry| {
        let batch = key::parts(&entry.key).and_then(|(_, rest)| key::number(rest));
        let (batch, _) = batch.ok_or_else(|| MetaError::Damaged("a head's key".to_owned()))?;
        heads.push((batch, decode("a head", &entry.value)?));
        Ok(())
    })
    .await?;
    let [(batch, head)] = heads[..] else {
        let found = heads.len();
        return Err(MetaError::Damaged(format!(
            "{found} heads in the place of one"
        )));
    };
    let mut outcomes = BTreeMap::new();
    entries(engine, &keys.all(b'r'), |entry| {
        outcomes.insert(
            outcome_key(&entry.key)?,
            decode("an outcome", &entry.value)?,
        );
        Ok(())
    })
    .await?;
    Ok(Loaded {
        batch,
        head,
        outcomes,
        edits: EditCounts::load(engine, keys).await?,
    })
}

fn outcome_key(bytes: &[u8]) -> Result<(SessionId, RequestId), MetaError> {
    let parts = key::parts(bytes).and_then(|(_, rest)| {
        let (session, rest) = rest.split_first_chunk::<SESSION_BYTES>()?;
        let (number, _) = key::number(rest)?;
        Some((SessionId(*session), request(number)))
    });
    parts.ok_or_else(|| MetaError::Damaged("the key of an outcome".to_owned()))
}

/// The stores that a volume's layouts name by number.
pub(super) async fn targets(
    engine: &dyn Engine,
    keys: Keys,
) -> Result<BTreeMap<u16, Target>, MetaError> {
    let mut targets = BTreeMap::new();
    entries(engine, &keys.all(b't'), |entry| {
        let number = key::parts(&entry.key).and_then(|(_, rest)| key::number(rest));
        let number = number.and_then(|(number, _)| u16::try_from(number).ok());
        let number = number.ok_or_else(|| MetaError::Damaged("the key of a store".to_owned()))?;
        targets.insert(number, decode_target(&entry.value)?);
        Ok(())
    })
    .await?;
    Ok(targets)
}

/// The first number that no store has.
pub(super) fn free_target(targets: &BTreeMap<u16, Target>) -> Result<u16, NamespaceError> {
    let next = targets
        .last_key_value()
        .map_or(0, |(last, _)| usize::from(*last) + 1);
    match u16::try_from(next) {
        Ok(next) if usize::from(next) < NAMESPACE_TARGETS_MAX => Ok(next),
        _ => Err(NamespaceError::Full("stores")),
    }
}

/// The time of day, for those who have no other clock.
pub(super) fn time_of_day() -> Timestamp {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    timestamp(now.map_or(0, |now| now.as_nanos().cast_signed()))
}
