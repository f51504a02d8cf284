//! Changes of a range, from a stream of the cluster that is made again where it broke off.

use super::Shared;
use super::call::{Pauses, Trouble, once};
use crate::engine::{Answer, Revision};
use crate::watch::Source;
use crate::{Changed, Changes, KeyRange, MetaError, space};
use base::limits::META_WATCH_MESSAGE_BYTES_MAX;
use etcd_client::{Event, EventType, WatchOptions, WatchResponse, WatchStream};
use std::sync::Arc;

pub(super) struct EtcdSource {
    shared: Arc<Shared>,
    /// Below the prefix.
    place: KeyRange,
    /// Everything up to this has been received.
    after: Revision,
    stream: Option<WatchStream>,
    /// What has been received and not been told, the next last.
    left: Vec<Changes>,
    pauses: Pauses,
}

impl EtcdSource {
    pub(super) fn new(shared: Arc<Shared>, range: &KeyRange, after: Revision) -> Self {
        Self {
            place: space::below(&shared.prefix, range),
            shared,
            after,
            stream: None,
            left: Vec::new(),
            pauses: Pauses::new(),
        }
    }

    async fn next_changes(&mut self) -> Result<Changes, MetaError> {
        loop {
            if let Some(changes) = self.left.pop() {
                return Ok(changes);
            }
            let received = match &mut self.stream {
                Some(stream) => stream.message().await.map_err(Trouble::from),
                None => match self.open().await {
                    Ok(stream) => {
                        self.stream = Some(stream);
                        continue;
                    }
                    Err(trouble) => Err(trouble),
                },
            };
            let trouble = match received {
                Ok(Some(message)) => self.take(&message),
                Ok(None) => Err(Trouble::Passing("the stream has ended".to_owned())),
                Err(trouble) => Err(trouble),
            };
            match trouble {
                Ok(()) => self.pauses = Pauses::new(),
                Err(Trouble::Passing(_) | Trouble::Busy(_)) => {
                    self.stream = None;
                    self.pauses.pause().await;
                }
                // More than we take has come together since: it is not told piece by piece.
                Err(Trouble::LargeAnswer) => return Err(Trouble::Compacted.into()),
                Err(trouble) => return Err(trouble.into()),
            }
        }
    }

    async fn open(&self) -> Result<WatchStream, Trouble> {
        let after = self.after.0.cast_signed();
        let mut options = WatchOptions::new()
            .with_start_revision(after + 1)
            .with_progress_notify();
        if let Some(end) = self.place.end() {
            options = options.with_range(end);
        }
        let client = self.shared.client.watch_client();
        let mut client = client.max_decoding_message_size(META_WATCH_MESSAGE_BYTES_MAX);
        once(client.watch(self.place.start(), Some(options))).await
    }

    fn take(&mut self, message: &WatchResponse) -> Result<(), Trouble> {
        if message.compact_revision() > 0 {
            // It has everything from its own revision on.
            let oldest = message.compact_revision() - 1;
            return Err(Trouble::Definite(MetaError::HistoryLost {
                oldest: Revision(oldest.cast_unsigned()),
            }));
        }
        if message.canceled() {
            let reason = message.cancel_reason().to_owned();
            return Err(match reason.contains("permission denied") {
                true => Trouble::Definite(MetaError::Refused(reason)),
                false => Trouble::Passing(reason),
            });
        }
        let mut received: Vec<Changes> = Vec::new();
        for event in message.events() {
            let (revision, changed) = self.changed(event)?;
            match received.last_mut() {
                Some(changes) if changes.revision == revision => changes.changed.push(changed),
                _ => received.push(Changes {
                    revision,
                    changed: vec![changed],
                }),
            }
        }
        if let Some(last) = received.last() {
            self.after = last.revision;
        } else if !message.created()
            && let Some(header) = message.header()
        {
            // Nothing has happened here up to this revision: a stream that is made again later
            // need not begin before it, where history may be gone.
            self.after = self.after.max(Revision(header.revision().cast_unsigned()));
        }
        received.reverse();
        self.left = received;
        Ok(())
    }

    fn changed(&self, event: &Event) -> Result<(Revision, Changed), Trouble> {
        let stored = event.kv().and_then(|entry| {
            let key = entry.key().strip_prefix(self.shared.prefix.as_slice())?;
            Some((entry, key.to_vec()))
        });
        let damaged = || MetaError::Damaged("an event of the cluster names no key".to_owned());
        let (entry, key) = stored.ok_or_else(|| Trouble::Definite(damaged()))?;
        let revision = Revision(entry.mod_revision().cast_unsigned());
        let changed = match event.event_type() {
            EventType::Put => Changed::Put(key, entry.value().to_vec()),
            EventType::Delete => Changed::Deleted(key),
        };
        Ok((revision, changed))
    }
}

impl Source for EtcdSource {
    fn next(&mut self) -> Answer<'_, Changes> {
        Box::pin(self.next_changes())
    }
}
