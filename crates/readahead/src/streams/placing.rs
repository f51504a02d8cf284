//! Which stream a read belongs to: the part of [`FileStreams`] that listens.

use super::{
    Advice, Belonging, CREDIT_BYTES_MIN, CREDIT_INITIAL_BYTES, Chain, Extent, FileStreams,
    PAGE_BYTES, REORDER_BYTES, STREAMS_PER_FILE_MAX, Stream, StreamId, Time,
};

/// Reads after which a stream that came back is a stream of its own. A single one may be the late
/// tail of a run that was left...
const RETURN_READS: u32 = 2;
/// ... unless it comes after this many reads of others.
const RETURN_GAP_READS: u64 = 4;
/// Credit of a stream whose application promised to read from front to back.
const CREDIT_BYTES_SEQUENTIAL: u64 = 8 << 20;

impl FileStreams {
    /// Hands a read to its stream, or forks a new one.
    pub(super) fn place(&mut self, now: Time, extent: Extent, size: u64) {
        let number = self.read_count;
        let belongs = |(at, stream): (usize, &Stream)| {
            // Of two streams that a read suits equally, the later read one.
            stream
                .belonging(extent, size)
                .map(|how| (how, number - stream.read_number, at))
        };
        let Some((how, _, at)) = self.streams.iter().enumerate().filter_map(belongs).min() else {
            self.fork(now, extent, size);
            return;
        };
        let stream = &mut self.streams[at];
        let run_end_before = stream.chain.run.end();
        let gap_reads = number - stream.read_number;
        let jump = stream.read(now, number, extent, how, size, &mut self.recall);
        let id = stream.id;
        if how == Belonging::Extends && stream.outgrows_its_plan() {
            self.drop_plan(at);
        }
        // Before forks are parted: a run's front that came late is a fork too.
        let returns = self.streams[at].returns;
        self.absorb_neighbours(id, run_end_before);
        if returns >= RETURN_READS || gap_reads >= RETURN_GAP_READS {
            self.part_forks(id);
        }
        if how == Belonging::Extends && gap_reads >= RETURN_GAP_READS {
            self.presume_sequential(gap_reads);
        }
        if let Some(jump) = jump {
            self.fork(now, jump, size);
        }
    }

    /// Gives up what a stream has asked for elsewhere than within its credit ahead of its run.
    fn drop_plan(&mut self, at: usize) {
        let stream = &mut self.streams[at];
        stream.clear_plan();
        let ahead = Extent::new(stream.chain.run.end(), stream.credit_bytes);
        let mut planned: Vec<Extent> = self
            .ledger
            .of(stream.id)
            .map(|entry| entry.extent)
            .collect();
        planned.retain(|extent| !ahead.overlaps(*extent));
        for extent in planned {
            self.give_up(extent);
        }
        // Its new pattern is judged by itself.
        self.streams[at].hit_bytes = 0;
        self.streams[at].wasted_bytes = 0;
    }

    /// A jump: a stream of its own that takes its history from the stream it most likely left.
    fn fork(&mut self, now: Time, extent: Extent, size: u64) {
        self.last_id += 1;
        let id = StreamId(self.last_id);
        let whole_small_file = extent.offset == 0 && size <= CREDIT_INITIAL_BYTES;
        let first_credit_bytes = match self.advice {
            Some(Advice::Sequential) => CREDIT_BYTES_SEQUENTIAL,
            _ if whole_small_file => size,
            _ => CREDIT_BYTES_MIN,
        };
        let parent = self.parent_of(extent);
        if let Some(at) = parent {
            self.release_overshoot_of(self.streams[at].id);
        }
        let mut stream = match parent {
            Some(at) => {
                let parent = &mut self.streams[at];
                parent.returns = 0;
                let mut chain = parent.chain.clone();
                chain.begin_run(extent, &mut self.recall);
                let credit_bytes = first_credit_bytes.max(parent.credit_bytes / 4);
                let mut stream = Stream::new(id, chain, credit_bytes, now);
                stream.parent = Some(parent.id);
                stream.overshoot = parent.overshoot;
                stream
            }
            None => Stream::new(id, Chain::new(extent), first_credit_bytes, now),
        };
        stream.set_born(self.read_count, extent.len);
        stream.replan();
        if self.streams.len() >= STREAMS_PER_FILE_MAX {
            self.evict_oldest();
        }
        self.streams.push(stream);
    }

    /// The stream that a jump to `extent` left. With one stream in turn it is the last read one; of
    /// interleaved streams it is the nearest.
    fn parent_of(&self, extent: Extent) -> Option<usize> {
        let latest = (0..self.streams.len()).max_by_key(|&at| self.streams[at].read_number)?;
        if self.streams[latest].turn_reads() < 2 {
            return Some(latest);
        }
        let number = self.read_count;
        let in_turn = |at: &usize| {
            let stream = &self.streams[*at];
            number - stream.read_number <= 2 * stream.turn_reads()
        };
        let distance = |at: &usize| self.streams[*at].chain.run.end().abs_diff(extent.offset);
        (0..self.streams.len())
            .filter(in_turn)
            .min_by_key(distance)
            .or(Some(latest))
    }

    /// The readers came back to stream `id`: what was forked from it is another stream,
    /// interleaved, whose pattern does not include this one's.
    fn part_forks(&mut self, id: StreamId) {
        for fork in self
            .streams
            .iter_mut()
            .filter(|stream| stream.parent == Some(id))
        {
            fork.parent = None;
            if fork.own_runs <= 2 {
                fork.chain.forget();
                fork.clear_plan();
            }
        }
    }

    /// One of several interleaved streams goes on where it was: those that were read once since
    /// then will do the same.
    fn presume_sequential(&mut self, gap_reads: u64) {
        let number = self.read_count;
        for stream in &mut self.streams {
            if stream.own_runs == 1 && stream.reads_in_run == 1 && !stream.asleep {
                let recent = number - stream.read_number < gap_reads;
                stream.reads_in_run += u32::from(recent);
            }
        }
    }

    /// The run of stream `id` grew from `end_before`. Young streams that its run now touches were
    /// its own reads, come out of order.
    fn absorb_neighbours(&mut self, id: StreamId, end_before: u64) {
        while let Some(at) = self.at(id) {
            let run = self.streams[at].chain.run;
            // A planned run may begin anywhere.
            let end_before = end_before.max(run.offset);
            if run.end() <= end_before {
                return;
            }
            let touches = |other: &Stream| {
                let theirs = other.chain.run;
                let ahead = theirs.offset >= end_before
                    && theirs.offset <= run.end().saturating_add(PAGE_BYTES);
                let before =
                    theirs.end().abs_diff(run.offset) <= PAGE_BYTES && run.len <= REORDER_BYTES;
                other.id != id
                    && other.own_runs == 1
                    && theirs.len <= REORDER_BYTES
                    && (ahead || (before && other.parent == Some(id)))
            };
            let Some(other) = self.streams.iter().position(touches) else {
                return;
            };
            let absorbed = self.streams.remove(other);
            let heirs: Vec<u64> = self
                .ledger
                .of(absorbed.id)
                .map(|entry| entry.extent.offset)
                .collect();
            for offset in heirs {
                self.ledger.hand_over(offset, id);
            }
            let Some(at) = self.at(id) else { return };
            let stream = &mut self.streams[at];
            stream.unread_bytes += absorbed.unread_bytes;
            let theirs = absorbed.chain.run;
            if theirs.offset < run.offset {
                stream.chain.move_start(theirs.offset);
                stream.replan();
            } else {
                stream.grow_run(theirs.end());
            }
        }
    }

    fn evict_oldest(&mut self) {
        let oldest = (0..self.streams.len()).min_by_key(|&at| self.streams[at].read_number);
        if let Some(at) = oldest {
            self.give_up_stream(at);
            self.streams.swap_remove(at);
        }
    }
}
