//! Devices, questions and random numbers for tests.

use super::super::ask::Wish;
use super::super::plan::PlanDevice;
use crate::storage::{Floors, Plan};
use base::{ServerId, StoreId, TicketId, VolumeId};
use reservation::scheduler::{Measured, Operation};
use std::sync::Arc;
use wire::message::{ReserveTerms, ReserveWindow};

pub(super) const MIB: u64 = 1 << 20;
pub(super) const VOLUME: VolumeId = VolumeId([7; 16]);

/// A plan of a device that reads and writes at the same rate, in any size.
pub(super) fn plan(bytes_per_second: u64) -> Arc<Plan> {
    plan_of(bytes_per_second, bytes_per_second)
}

/// The same with a rate for reading and one for writing.
pub(super) fn plan_of(read: u64, write: u64) -> Arc<Plan> {
    let both = [(Operation::Read, 0, read), (Operation::Write, 100, write)];
    let cells = both.map(|(operation, write_percent, bytes_per_second)| Measured {
        operation,
        size_bytes: 1 << 20,
        depth: 4,
        write_percent,
        bytes_per_second,
    });
    Arc::new(Plan::new(&cells, Floors::default()).unwrap())
}

/// Device `store` of a server, with so many MiB/s.
pub(super) fn device(server: u8, store: u8, mib_per_second: u64) -> PlanDevice {
    PlanDevice {
        server: ServerId([server; 16]),
        store: StoreId([store; 16]),
        plan: plan(mib_per_second * MIB),
        is_export: false,
        is_measured: true,
        is_well: true,
        au_bytes: MIB,
        au_count: 1000,
    }
}

pub(super) fn id(number: u64) -> TicketId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&number.to_le_bytes());
    TicketId(id)
}

/// Terms of writing at so many MiB/s.
pub(super) fn terms(mib_per_second: u64, start_secs: u64, end_secs: u64) -> ReserveTerms {
    ReserveTerms {
        read_bytes_per_second: 0,
        write_bytes_per_second: mib_per_second * MIB,
        burst_millis: 100,
        space_bytes: 0,
        window: ReserveWindow::At {
            start_secs,
            end_secs,
        },
        every_secs: 0,
        count: 1,
        lifetime_secs: 0,
        stores: Vec::new(),
    }
}

pub(super) fn wish(number: u64, terms: ReserveTerms) -> Wish {
    Wish {
        volume: VOLUME,
        holder: 1000,
        name: format!("run{number}"),
        terms,
        among: None,
    }
}

/// Numbers that look random and are the same each time.
pub(super) struct Numbers(u64);

impl Numbers {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// One below `end`.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}
