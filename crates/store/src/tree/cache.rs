//! Pages in memory, a bounded number of them.
//!
//! Two generations: what is used moves into the young one; when that is full it becomes the old one
//! and the old one is forgotten. A page that was used among the last half of the bound is so
//! always there, at the price of one look-up and no lists.

use super::node::Node;
use crate::pages::Pointer;
use base::QuickMap;
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Debug)]
pub(crate) struct Cache {
    half: usize,
    generations: Mutex<Generations>,
}

type Pages = QuickMap<u64, (u32, Arc<Node>)>;

#[derive(Debug, Default)]
struct Generations {
    young: Pages,
    old: Pages,
}

impl Cache {
    pub(crate) fn new(pages_max: usize) -> Self {
        Self {
            half: (pages_max / 2).max(1),
            generations: Mutex::default(),
        }
    }

    /// The page that this pointer means: not another one that was in its place before.
    pub(crate) fn get(&self, pointer: Pointer) -> Option<Arc<Node>> {
        let mut generations = self
            .generations
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let fits = |(crc, node): &(u32, Arc<Node>)| (*crc == pointer.crc).then(|| node.clone());
        if let Some(found) = generations.young.get(&pointer.page) {
            return fits(found);
        }
        let node = fits(generations.old.get(&pointer.page)?)?;
        self.insert(&mut generations, pointer, node.clone());
        Some(node)
    }

    pub(crate) fn put(&self, pointer: Pointer, node: Arc<Node>) {
        let mut generations = self
            .generations
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.insert(&mut generations, pointer, node);
    }

    fn insert(&self, generations: &mut Generations, pointer: Pointer, node: Arc<Node>) {
        if generations.young.len() >= self.half {
            generations.old = std::mem::take(&mut generations.young);
        }
        generations.young.insert(pointer.page, (pointer.crc, node));
    }
}
