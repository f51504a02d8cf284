//! A namespace on an engine, asked from threads as a server asks it.

use base::{Handle, Name, Principal, VolumeId};
use meta::namespace::{
    DirectoryEntry, Namespace, NamespaceOptions, Node, Report, Striping, Target, Turn, check, make,
};
use meta::{Embedded, Engine, Leadership};
use std::path::Path;
use std::sync::Arc;
use tokio::runtime::Runtime;

pub(crate) const VOLUME: VolumeId = VolumeId([9; 16]);

pub(crate) fn name(name: &str) -> Name {
    Name::new(name).unwrap()
}

pub(crate) fn root() -> Principal {
    Principal::root()
}

/// A whole directory, page by page.
pub(crate) fn list(
    namespace: &Namespace,
    turn: &Turn,
    who: &Principal,
    directory: &Handle,
) -> Result<Vec<DirectoryEntry>, base::FsError> {
    let (mut entries, mut cookie) = (Vec::<DirectoryEntry>::new(), 0);
    loop {
        let page = namespace.read_directory(turn, who, directory, cookie, 100, true)?;
        entries.extend(page.entries);
        match entries.last() {
            Some(last) if !page.end => cookie = last.cookie,
            _ => return Ok(entries),
        }
    }
}

/// A runtime, an engine, a seat, a namespace.
pub(crate) struct World {
    pub(crate) namespace: Arc<Namespace>,
    pub(crate) leadership: Arc<Leadership>,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) runtime: Arc<Runtime>,
}

pub(crate) fn runtime() -> Arc<Runtime> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    Arc::new(runtime.unwrap())
}

pub(crate) fn options() -> NamespaceOptions {
    NamespaceOptions::new(VOLUME, [1; 32])
}

impl World {
    /// On an embedded engine; made if there is none.
    pub(crate) fn at(path: &Path) -> Self {
        let runtime = runtime();
        let engine: Arc<dyn Engine> = runtime.block_on(Embedded::open(path)).unwrap();
        Self::on(runtime, engine, options())
    }

    pub(crate) fn on(
        runtime: Arc<Runtime>,
        engine: Arc<dyn Engine>,
        options: NamespaceOptions,
    ) -> Self {
        let (namespace, leadership) = runtime.block_on(async {
            let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
            let now = base::Timestamp {
                seconds: i64::try_from(now.as_secs()).unwrap(),
                nanos: now.subsec_nanos(),
            };
            // It may be there from before.
            let _ = make(&*engine, VOLUME, (0, 0), now).await;
            let limit = std::time::Duration::from_secs(20);
            let leadership = meta::campaign(&*engine, "namespace", "test", limit)
                .await
                .unwrap();
            let leadership = Arc::new(leadership);
            let opened = Namespace::open(Arc::clone(&engine), Arc::clone(&leadership), options);
            (Arc::new(opened.await.unwrap()), leadership)
        });
        let world = Self {
            namespace,
            leadership,
            engine,
            runtime,
        };
        world.stripe();
        world
    }

    fn stripe(&self) {
        let targets = (0..4u8).map(|index| Target {
            server: base::ServerId([index; 16]),
            store: base::StoreId([index; 16]),
        });
        let numbers = targets.map(|target| {
            let adding = self.namespace.add_target(target);
            self.runtime.block_on(adding).unwrap()
        });
        self.namespace.set_striping(Striping {
            unit_log2: 20,
            width: 2,
            targets: numbers.collect(),
        });
    }

    pub(crate) fn top(&self) -> Handle {
        self.namespace.root().clone()
    }

    /// What an operation says, once it is durable.
    pub(crate) fn durably<T>(&self, operation: impl FnOnce(&Namespace, &Turn) -> T) -> T {
        let turn = Turn::new();
        let answer = operation(&self.namespace, &turn);
        self.namespace.wait_here(&turn).unwrap();
        answer
    }

    pub(crate) fn file(&self, parent: &Handle, file: &str) -> Node {
        let made = self.durably(|namespace, turn| {
            let kind = base::FileKind::File;
            namespace.make_node(turn, &root(), parent, &name(file), kind, 0o644, 0, 0)
        });
        made.unwrap()
    }

    pub(crate) fn directory(&self, parent: &Handle, directory: &str) -> Node {
        let made = self.durably(|namespace, turn| {
            namespace.make_directory(turn, &root(), parent, &name(directory), 0o755, 0)
        });
        made.unwrap()
    }

    pub(crate) fn find(&self, parent: &Handle, file: &str) -> Result<Node, base::FsError> {
        self.durably(|namespace, turn| namespace.lookup(turn, &root(), parent, &name(file)))
    }

    /// What the check says of what the engine has.
    pub(crate) fn checked(&self) -> Report {
        self.runtime.block_on(self.namespace.sync_all()).unwrap();
        let report = self.runtime.block_on(check(&*self.engine, VOLUME)).unwrap();
        assert_eq!(report.findings, Vec::<String>::new());
        report
    }

    /// Ends it; the engine can be opened again.
    pub(crate) fn close(self) {
        self.runtime.block_on(self.namespace.close());
        let Self {
            namespace,
            leadership,
            engine,
            runtime,
        } = self;
        drop(namespace);
        let leadership = Arc::into_inner(leadership).expect("nothing else has it");
        runtime.block_on(leadership.resign());
        drop(engine);
    }
}
