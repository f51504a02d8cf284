//! The tables of the file, and opening it. Drawn in `docs/formats/meta.md`.

use super::log::decode;
use crate::engine::{Entry, Revision};
use crate::{MetaError, space};
use base::limits::META_CACHE_BYTES;
use redb::{
    Builder, Database, DatabaseError, ReadableTable, ReadableTableMetadata, StorageError, Table,
    TableDefinition,
};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Version of the tables; the history is in `docs/formats/meta.md`.
pub const META_FORMAT_VERSION: u64 = 1;

/// Keys as in [`space`]; eight bytes of revision, little-endian, then the value.
pub(super) const ENTRIES: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("entries");
/// The last revision of a group, and its changes: `log`.
pub(super) const LOG: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("log");
/// Single numbers by name.
pub(super) const NUMBERS: TableDefinition<'static, &str, u64> = TableDefinition::new("numbers");

const FORMAT: &str = "format";
/// The revision of the last transaction.
pub(super) const REVISION: &str = "revision";
/// The log has everything after this revision.
pub(super) const OLDEST: &str = "oldest";

/// What a file says when it is opened.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) revision: Revision,
    /// The log has everything after this.
    pub(super) oldest: Revision,
    /// The groups of the log: last revision and bytes.
    pub(super) groups: Vec<(Revision, usize)>,
}

/// Opens the file, or makes one under another name and gives it this one when it is complete.
pub(super) fn open(path: &Path) -> Result<Database, MetaError> {
    let mut builder = Database::builder();
    builder.set_cache_size(META_CACHE_BYTES);
    if !path.try_exists().map_err(io_error)? {
        make(&builder, path)?;
    }
    builder.open(path).map_err(database_error)
}

fn make(builder: &Builder, path: &Path) -> Result<(), MetaError> {
    let mut name = OsString::from(path);
    name.push(".new");
    let new = PathBuf::from(name);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io_error(error)),
        _ => {}
    }
    // What is promised to whom is nobody else's.
    let mut options = File::options();
    let options = options.read(true).write(true).create_new(true).mode(0o600);
    let file = options.open(&new).map_err(io_error)?;
    let backend = redb::backends::FileBackend::new(file).map_err(database_error)?;
    let database = builder
        .create_with_backend(backend)
        .map_err(database_error)?;
    prepare(&database)?;
    drop(database);
    fs::rename(&new, path).map_err(io_error)?;
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let directory = File::open(parent.unwrap_or(Path::new("."))).map_err(io_error)?;
    directory.sync_all().map_err(io_error)
}

/// Makes the tables that are not there, vacates all seats, and says how far the file is.
pub(super) fn prepare(database: &Database) -> Result<Opened, MetaError> {
    let mut writing = database.begin_write().map_err(redb_error)?;
    let opened = {
        let mut numbers = writing.open_table(NUMBERS).map_err(redb_error)?;
        let mut log = writing.open_table(LOG).map_err(redb_error)?;
        let mut entries = writing.open_table(ENTRIES).map_err(redb_error)?;
        let format = number(&numbers, FORMAT)?;
        match format {
            Some(META_FORMAT_VERSION) => {}
            Some(found) => {
                return Err(MetaError::Newer {
                    found,
                    known: META_FORMAT_VERSION,
                });
            }
            None if entries.is_empty().map_err(redb_error)? => {
                set(&mut numbers, FORMAT, META_FORMAT_VERSION)?;
                set(&mut numbers, REVISION, 0)?;
                set(&mut numbers, OLDEST, 0)?;
            }
            None => return Err(MetaError::Foreign("it has no format version".to_owned())),
        }
        let mut opened = read(&numbers, &log)?;
        vacate_seats(&mut opened, &mut numbers, &mut log, &mut entries)?;
        opened
    };
    writing.set_quick_repair(true);
    writing.commit().map_err(redb_error)?;
    Ok(opened)
}

fn read(
    numbers: &impl ReadableTable<&'static str, u64>,
    log: &impl ReadableTable<u64, &'static [u8]>,
) -> Result<Opened, MetaError> {
    let mut groups = Vec::new();
    for row in log.iter().map_err(redb_error)? {
        let (revision, group) = row.map_err(redb_error)?;
        groups.push((Revision(revision.value()), group.value().len()));
    }
    let revision = Revision(there(numbers, REVISION)?);
    if let Some((last, _)) = groups.last()
        && *last > revision
    {
        return Err(MetaError::Damaged(format!(
            "the log goes up to {last}, the entries to {revision}"
        )));
    }
    Ok(Opened {
        revision,
        oldest: Revision(there(numbers, OLDEST)?),
        groups,
    })
}

/// No process but this one has the file, so nobody has a seat.
fn vacate_seats(
    opened: &mut Opened,
    numbers: &mut Table<'_, &'static str, u64>,
    log: &mut Table<'_, u64, &'static [u8]>,
    entries: &mut Table<'_, &'static [u8], &'static [u8]>,
) -> Result<(), MetaError> {
    let seats = space::seats();
    let end = seats.end().expect("a prefix of one byte has an end");
    let mut vacated = Vec::new();
    for row in entries.range(seats.start()..end).map_err(redb_error)? {
        vacated.push(row.map_err(redb_error)?.0.value().to_vec());
    }
    if vacated.is_empty() {
        return Ok(());
    }
    for key in &vacated {
        entries.remove(key.as_slice()).map_err(redb_error)?;
    }
    opened.revision.0 += 1;
    let deletions = vacated.into_iter().map(crate::Changed::Deleted).collect();
    let group = vec![crate::Changes {
        revision: opened.revision,
        changed: deletions,
    }];
    let bytes = super::log::encode(&group);
    log.insert(opened.revision.0, bytes.as_slice())
        .map_err(redb_error)?;
    opened.groups.push((opened.revision, bytes.len()));
    set(numbers, REVISION, opened.revision.0)
}

fn number(
    numbers: &impl ReadableTable<&'static str, u64>,
    name: &str,
) -> Result<Option<u64>, MetaError> {
    let number = numbers.get(name).map_err(redb_error)?;
    Ok(number.map(|number| number.value()))
}

/// A number that every file has.
pub(super) fn there(
    numbers: &impl ReadableTable<&'static str, u64>,
    name: &str,
) -> Result<u64, MetaError> {
    number(numbers, name)?.ok_or_else(|| MetaError::Damaged(format!("there is no {name}")))
}

pub(super) fn set(
    numbers: &mut Table<'_, &'static str, u64>,
    name: &str,
    number: u64,
) -> Result<(), MetaError> {
    numbers.insert(name, number).map_err(redb_error)?;
    Ok(())
}

/// The bytes of an entry in its table.
pub(super) fn stored(revision: Revision, value: &[u8]) -> Vec<u8> {
    [&revision.0.to_le_bytes(), value].concat()
}

/// The revision that an entry was written at.
pub(super) fn revision_of(stored: &[u8]) -> Result<Revision, MetaError> {
    let revision = stored.first_chunk();
    let revision = revision.ok_or_else(|| MetaError::Damaged("an entry is cut off".to_owned()))?;
    Ok(Revision(u64::from_le_bytes(*revision)))
}

/// An entry as it is read.
pub(super) fn entry(key: &[u8], stored: &[u8]) -> Result<Entry, MetaError> {
    Ok(Entry {
        key: key.to_vec(),
        revision: revision_of(stored)?,
        value: stored[size_of::<Revision>()..].to_vec(),
    })
}

/// One group of the log as it is read.
pub(super) fn group(
    log: &impl ReadableTable<u64, &'static [u8]>,
    after: Revision,
) -> Result<Option<(Revision, Vec<crate::Changes>)>, MetaError> {
    let mut rows = log.range(after.0 + 1..).map_err(redb_error)?;
    let Some(row) = rows.next() else {
        return Ok(None);
    };
    let (last, group) = row.map_err(redb_error)?;
    Ok(Some((Revision(last.value()), decode(group.value())?)))
}

fn io_error(error: io::Error) -> MetaError {
    MetaError::Unavailable(error.to_string())
}

fn database_error(error: DatabaseError) -> MetaError {
    match error {
        DatabaseError::DatabaseAlreadyOpen => MetaError::InUse,
        DatabaseError::UpgradeRequired(_) => MetaError::Foreign(error.to_string()),
        DatabaseError::Storage(StorageError::Io(error))
            if error.kind() == io::ErrorKind::InvalidData =>
        {
            MetaError::Foreign(error.to_string())
        }
        other => redb_error(other),
    }
}

/// What redb says, as ours; while reading or opening. While writing it poisons.
pub(super) fn redb_error(error: impl Into<redb::Error>) -> MetaError {
    let error = error.into();
    match &error {
        redb::Error::Corrupted(_)
        | redb::Error::TableTypeMismatch { .. }
        | redb::Error::TypeDefinitionChanged { .. } => MetaError::Damaged(error.to_string()),
        _ => MetaError::Unavailable(error.to_string()),
    }
}
