//! Space of a file in its objects: where its data and holes are, and space that is given ahead.
//!
//! What the stores have counts, committed or not: everything that this machine had was handed to
//! them before. An object that is not there is a hole, and so is what lies behind its end.
//!
//! In each column, what is looked for has a first place at or behind the offset; the first of
//! these in the file is the answer.

use super::carry::{Carrying, Done, Result, Told, made};
use super::fs_error;
use super::map::{column_offset, file_offset, runs};
use crate::object::{ObjectCallError, StoreClient};
use base::limits::{ALLOCATE_BYTES_MAX, NAMESPACE_FILE_BYTES_MAX};
use base::{Extent, FsError, ObjectId};
use tokio::task::JoinSet;
use wire::message::{
    AllocateMode, FileColumn, FileLayout, FileRef, LayoutPurpose, ObjectError, SeekWhat, StepReply,
    StoredWhat,
};

impl Carrying<'_> {
    /// The next data or hole of a file; its end counts as a hole.
    pub(super) async fn seek(
        &self,
        file: &FileRef,
        offset: u64,
        what: SeekWhat,
    ) -> Result<Done<StepReply>> {
        let size = self.true_size(file).await?;
        if offset >= size {
            return Err(FsError::NoSuchAddress);
        }
        let layout = self.layout(file, LayoutPurpose::Read).await?;
        let mut seeking = JoinSet::new();
        for (index, column) in layout.columns.iter().copied().enumerate() {
            let store = self.store(&column).await?;
            let there = [offset, size].map(|at| column_offset(&layout, index, at));
            seeking.spawn(async move {
                let found = store.seek(column.object, there.into(), what).await;
                (index, there[0], found)
            });
        }
        let (mut found, mut runs, mut lacks_object) = (Vec::new(), Vec::new(), false);
        while let Some(sought) = seeking.join_next().await {
            let (index, from, sought) = sought.map_err(|_| FsError::Io)?;
            match sought {
                Ok((at, written)) => {
                    runs.push((layout.columns[index].server, written.verifier));
                    found.push((index, at));
                }
                Err(ObjectCallError::Object(ObjectError::NotFound)) => {
                    lacks_object = true;
                    found.push((index, Some(from).filter(|_| what == SeekWhat::Hole)));
                }
                Err(error) => return Err(fs_error(error)),
            }
        }
        if lacks_object {
            self.check_there(file).await?;
        }
        match (first(&layout, &found, size), what) {
            (Some(at), _) => Ok((StepReply::Position(at), runs)),
            (None, SeekWhat::Hole) => Ok((StepReply::Position(size), runs)),
            (None, SeekWhat::Data) => Err(FsError::NoSuchAddress),
        }
    }

    /// Gives out space, makes holes or zeros.
    ///
    /// Space that was given out is durable when that is answered: what is written there later, also
    /// again after a loss, finds it.
    pub(super) async fn allocate(
        &self,
        file: &FileRef,
        mode: AllocateMode,
        extent: Extent,
    ) -> Result<Done<StepReply>> {
        if extent.end() > NAMESPACE_FILE_BYTES_MAX {
            return Err(FsError::FileTooLarge);
        }
        let end = match mode {
            AllocateMode::PunchHole => return self.punch(file, extent).await,
            AllocateMode::KeepSize | AllocateMode::ZeroRangeKeepSize => 0,
            AllocateMode::Extend | AllocateMode::ZeroRange => extent.end(),
        };
        let is_cleared = match mode {
            AllocateMode::ZeroRange | AllocateMode::ZeroRangeKeepSize => true,
            AllocateMode::Extend | AllocateMode::KeepSize | AllocateMode::PunchHole => false,
        };
        let act = move |store: StoreClient, generation, (object, run): Run| async move {
            let allocate = || store.allocate_under(object, generation, run, is_cleared);
            made(&store, object, allocate).await
        };
        let what = match is_cleared {
            true => StoredWhat::Data,
            false => StoredWhat::Space,
        };
        let told = Told {
            end,
            extent,
            what,
            place: None,
        };
        let how = (LayoutPurpose::Write, told);
        let changed = self.change(file, how, |it| pieces(it, extent), act).await;
        let (reply, mut done_in) = changed?;
        if !is_cleared {
            let layout = self.layout(file, LayoutPurpose::Write).await?;
            let columns = layout.columns.iter().map(|column| (*column, None));
            done_in.extend(self.commit_at(columns.collect()).await?);
        }
        Ok((reply, done_in))
    }

    async fn punch(&self, file: &FileRef, hole: Extent) -> Result<Done<StepReply>> {
        let size = self.true_size(file).await?;
        let there = hole.intersection(Extent::new(0, size));
        let act = |store: StoreClient, generation, (object, run): Run| async move {
            match store.punch_under(object, generation, run).await {
                Ok(written) => Ok(Some(written.verifier)),
                Err(ObjectCallError::Object(ObjectError::NotFound)) => Ok(None),
                Err(error) => Err(error),
            }
        };
        let told = Told {
            end: 0,
            extent: there,
            what: StoredWhat::Hole,
            place: None,
        };
        let how = (LayoutPurpose::Write, told);
        self.change(file, how, |it| pieces(it, there), act).await
    }
}

/// Bytes of an object.
type Run = (ObjectId, Extent);

fn pieces(layout: &FileLayout, extent: Extent) -> Vec<(FileColumn, Run)> {
    let runs = runs(layout, extent, ALLOCATE_BYTES_MAX).into_iter();
    runs.map(|(column, run)| (column, (column.object, run)))
        .collect()
}

/// The first place in the file that a column has; none if all are behind its end.
fn first(layout: &FileLayout, found: &[(usize, Option<u64>)], size: u64) -> Option<u64> {
    let places = found.iter().filter_map(|(index, at)| {
        let at = file_offset(layout, *index, (*at)?);
        Some(at).filter(|at| *at < size)
    });
    places.min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{ServerId, StoreId};
    use proptest::prelude::*;

    const UNIT: u64 = 4;

    fn layout(width: usize) -> FileLayout {
        let column = |column| FileColumn {
            server: ServerId([1; 16]),
            store: StoreId([column; 16]),
            object: ObjectId([column; 16]),
        };
        FileLayout {
            unit_log2: 2,
            generation: 0,
            columns: (0..width as u8).map(column).collect(),
        }
    }

    /// What a store answers: an object has a bit for each byte, and none behind its end.
    fn in_object(object: &[bool], offset: u64, what: SeekWhat) -> Option<u64> {
        let offset = offset as usize;
        let is_wanted = |byte: bool| byte == (what == SeekWhat::Data);
        let rest = object.iter().enumerate().skip(offset);
        let found = rest.filter(|(_, byte)| is_wanted(**byte)).map(|(at, _)| at);
        let behind = (what == SeekWhat::Hole).then_some(object.len().max(offset));
        found.min().or(behind).map(|at| at as u64)
    }

    proptest! {
        #[test]
        fn the_first_place_of_all_columns_is_that_of_the_file(
            width in 1..5_usize,
            columns in prop::collection::vec(prop::collection::vec(any::<bool>(), 0..30), 5),
            size in 1..120_u64,
            offset in 0..120_u64,
            is_data in any::<bool>(),
        ) {
            let layout = layout(width);
            let offset = offset % size;
            // The file, byte by byte.
            let has_data = |at: u64| {
                let (stripe, within) = (at / UNIT, at % UNIT);
                let place = stripe / width as u64 * UNIT + within;
                let object = &columns[(stripe % width as u64) as usize];
                object.get(place as usize).copied().unwrap_or(false)
            };
            let expected = (offset..size).find(|at| has_data(*at) == is_data);
            let what = match is_data {
                true => SeekWhat::Data,
                false => SeekWhat::Hole,
            };
            let found: Vec<_> = (0..width)
                .map(|index| {
                    let from = column_offset(&layout, index, offset);
                    (index, in_object(&columns[index], from, what))
                })
                .collect();
            prop_assert_eq!(first(&layout, &found, size), expected);
        }
    }
}
