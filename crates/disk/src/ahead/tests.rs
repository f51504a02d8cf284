//! What is foreseen, with a source that never answers: everything asked for stays on its way.

use super::*;
use crate::chunk::Digest;
use crate::index::ChunkSizes;
use crate::source::{Part, Reading, Refusal, SourceError, Wanted};
use bytes::Bytes;
use std::future::pending;
use tokio::runtime::Runtime;

const CHUNK: u64 = 64 << 10;
const CHUNKS: u64 = 400;

#[derive(Debug)]
struct Silent;

impl Source for Silent {
    fn read<'a>(&'a self, _: &'a FileName, _: Wanted) -> Reading<'a> {
        Box::pin(pending())
    }

    fn read_now(&self, file: &FileName, _: Part) -> Result<Bytes, SourceError> {
        Err(SourceError {
            file: file.clone(),
            place: self.place(),
            refusal: Refusal::NotFound,
        })
    }

    fn place(&self) -> String {
        "nowhere".into()
    }
}

fn index() -> Arc<Index> {
    let chunks = (1..=CHUNKS).map(|n| (n * CHUNK, Digest::Sha256.id_of(&n.to_le_bytes())));
    let sizes = ChunkSizes::fixed(CHUNK as u32);
    Arc::new(Index::new(Digest::Sha256, sizes, chunks).unwrap())
}

fn ahead(foresight: Foresight) -> (Runtime, Arc<Ahead>) {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build().unwrap();
    let index = index();
    let source: Arc<dyn Source> = Arc::new(Silent);
    let fetcher = Fetcher::new(runtime.handle().clone(), None, 64 << 20);
    let observer = Arc::new(Observer::new(&index));
    let zeros = index.zeros();
    let ahead = Ahead::new(&index, &zeros, &source, &fetcher, &observer, foresight);
    (runtime, ahead)
}

#[test]
fn who_reads_another_part_of_what_is_on_its_way_is_not_surprised() {
    let (_runtime, ahead) = ahead(Foresight {
        sequential: true,
        ..Foresight::default()
    });
    let mut foreseen = 0;
    for number in 0..40 {
        let is_foreseen = ahead.state().flying.contains(&ahead.index.spec(number));
        for half in 0..2 {
            let extent = Extent::new(number as u64 * CHUNK + half * CHUNK / 2, CHUNK / 2);
            let noted = ahead.on_read(extent, &[number], true);
            assert_eq!(noted.is_surprise, !is_foreseen, "{number}, half {half}");
            ahead.on_answered(extent, noted);
        }
        foreseen += usize::from(is_foreseen);
    }
    assert!(foreseen >= 10, "{foreseen}");
    // So nothing keeps the window from being filled.
    assert_eq!(ahead.state().surprised, 0);
}
