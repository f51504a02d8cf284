//! Two clients that cache, and somebody behind the server's back.

use crate::client::{Client, Mode, name};
use crate::files::{at, create, made, write};
use crate::world::{World, is_root, new_session};
use base::limits::{LEASE_TIME, RECALL_TIME_MAX};
use base::{Handle, OpenId, RequestId};
use bytes::Bytes;
use std::time::{Duration, Instant};
use wire::message::{
    Access, ConnectionRole, CredentialKind, Lease, Notice, Recall, RecallItem, Reply, Request,
    Step, StepReply,
};

fn items(notices: &[Notice]) -> Vec<RecallItem> {
    notices
        .iter()
        .flat_map(|notice| match notice {
            Notice::Recall { items, .. } => items.clone(),
            other => panic!("{other:?}"),
        })
        .collect()
}

fn everything(handle: &Handle) -> RecallItem {
    RecallItem {
        handle: handle.clone(),
        what: Recall::Everything,
    }
}

async fn listed(client: &mut Client, root: &Handle) -> Lease {
    let list = Step::ReadDirectory {
        target: at(root),
        cookie: 0,
        entries_max: 100,
    };
    match client.step(list).await {
        Ok(StepReply::Directory { lease, .. }) => lease,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_answered_when_everybody_who_caches_has_let_go() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    let (mut reader, mut writer) = (world.client().await, world.client().await);
    let root = writer.attach().await.handle;
    let a = made(&writer.step(create(&root, "a", None)).await);
    reader.attach_while(&mut writer).await;
    assert_eq!(reader.lookup(&root, "a").await.unwrap().lease, Lease::Read);

    reader.obeys = false;
    let mut request = crate::client::frame(
        wire::frame::FrameKind::Request,
        writer.new_id(),
        &writer.compound(vec![write(&a, None, 0, 2)]),
    );
    request.payload = Bytes::from_static(b"xy").into();
    let id = request.request.0;
    writer.send_frame(request).await;
    while reader.notices.is_empty() {
        reader.receive().await.unwrap();
    }
    assert_eq!(items(&reader.notices), [everything(&a)]);
    // The write is on the disk, but not yet answered.
    let early = tokio::time::timeout(Duration::from_millis(200), writer.reply(id)).await;
    assert!(early.is_err(), "answered before the reader has let go");
    assert_eq!(std::fs::read(world.tree.join("a")).unwrap(), b"xy");
    let Some(Notice::Recall { id: recall, .. }) = reader.notices.last().cloned() else {
        panic!()
    };
    reader.send(&Request::RecallDone(recall)).await;
    writer.reply(id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_client_holds_nobody_up_for_longer_than_its_lease() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    let (mut reader, mut writer) = (world.client().await, world.client().await);
    let root = writer.attach().await.handle;
    let a = made(&writer.step(create(&root, "a", None)).await);
    reader.attach_while(&mut writer).await;
    reader.lookup(&root, "a").await.unwrap();
    let heard = Instant::now();
    let (results, _) = writer
        .steps_with(vec![write(&a, None, 0, 2)], Bytes::from_static(b"xy"))
        .await;
    assert!(results[0].is_ok());
    let waited = heard.elapsed();
    let lease = base::limits::LEASE_TIME;
    assert!(waited >= lease - Duration::from_millis(100), "{waited:?}");
    assert!(waited < lease + Duration::from_secs(2), "{waited:?}");
    // It has lost its leases, not its session.
    assert_eq!(reader.call(&Request::Ping).await, Reply::Done);
    assert_eq!(reader.lookup(&root, "a").await.unwrap().attributes.size, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_recalled_by_name_and_the_rest_of_the_directory_stays() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    let (mut reader, mut writer) = (world.client().await, world.client().await);
    let root = reader.attach().await.handle;
    assert!(
        reader.lookup(&root, "new").await.is_none(),
        "and that is cached, too"
    );
    assert_eq!(listed(&mut reader, &root).await, Lease::Read);
    let sending = writer.send_steps(vec![create(&root, "new", None)]).await;
    while reader.notices.is_empty() {
        reader.receive().await.unwrap();
    }
    writer.reply(sending).await.unwrap();
    let entry = RecallItem {
        handle: root.clone(),
        what: Recall::Entry(name("new")),
    };
    assert_eq!(items(&reader.notices), [entry]);
    // The lease on the directory stood: the next change is recalled as well.
    let sending = writer.send_steps(vec![create(&root, "newer", None)]).await;
    while items(&reader.notices).len() < 2 {
        reader.receive().await.unwrap();
    }
    writer.reply(sending).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_used_alone_is_leased_alone_until_another_client_looks() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    let (mut maker, mut other) = (world.client().await, world.client().await);
    let root = maker.attach().await.handle;
    let step = Step::MakeDirectory {
        parent: at(&root),
        name: name("d"),
        mode: 0o755,
        umask: 0,
    };
    let Ok(StepReply::Created {
        entry,
        parent_lease,
        ..
    }) = maker.step(step).await
    else {
        panic!()
    };
    assert_eq!(
        (entry.lease, parent_lease),
        (Lease::Exclusive, Lease::Exclusive)
    );
    let d = entry.handle;
    let Ok(StepReply::Created {
        parent_lease: Lease::Exclusive,
        ..
    }) = maker.step(create(&d, "a", None)).await
    else {
        panic!()
    };
    // Before the other one sees the directory, the maker writes back what it answered ahead.
    maker.obeys = false;
    other.attach_while(&mut maker).await;
    let sending = other
        .send_steps(vec![Step::Attributes { target: at(&d) }])
        .await;
    let wanted = RecallItem {
        handle: d.clone(),
        what: Recall::Exclusive,
    };
    while !items(&maker.notices).contains(&wanted) {
        maker.receive().await.unwrap();
    }
    made(&maker.step(create(&d, "ahead", None)).await);
    let Some(Notice::Recall { id, .. }) = maker.notices.last().cloned() else {
        panic!()
    };
    maker.call(&Request::RecallDone(id)).await;
    let (reply, _) = other.reply(sending).await.unwrap();
    assert!(matches!(reply, Reply::Files(_)));
    assert_eq!(listed(&mut other, &d).await, Lease::Read);
    // And nobody has it alone now.
    let Ok(StepReply::Created { parent_lease, .. }) = other.create_while(&mut maker, &d).await
    else {
        panic!()
    };
    assert_eq!(parent_lease, Lease::Read);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_another_client_writes_is_not_leased() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    let (mut reader, mut writer) = (world.client().await, world.client().await);
    let root = reader.attach().await.handle;
    std::fs::write(world.tree.join("a"), "x").unwrap();
    let a = writer.lookup(&root, "a").await.unwrap().handle;
    let open = |access| Step::Open {
        target: at(&a),
        open: OpenId(1),
        access,
        truncate: false,
    };
    let Ok(StepReply::Attributes { lease, .. }) = writer.step(open(Access::Write)).await else {
        panic!()
    };
    assert_eq!(lease, Lease::Read, "the writer itself may cache");
    assert_eq!(reader.lookup(&root, "a").await.unwrap().lease, Lease::None);
    writer.step(Step::Close { open: OpenId(1) }).await.unwrap();
    assert_eq!(reader.lookup(&root, "a").await.unwrap().lease, Lease::Read);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_main_connection_there_are_no_leases() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    let role = ConnectionRole::Bulk;
    let mut bulk = world
        .client_as(&world.admin, new_session(), role, Mode::Tls)
        .await;
    let entry = bulk.attach().await;
    assert_eq!(entry.lease, Lease::None);
    assert_eq!(listed(&mut bulk, &entry.handle).await, Lease::None);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_do_on_the_servers_machine_is_recalled() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    std::fs::write(world.tree.join("a"), "x").unwrap();
    let mut reader = world.client().await;
    let root = reader.attach().await.handle;
    let a = reader.lookup(&root, "a").await.unwrap();
    assert_eq!(a.lease, Lease::Read);
    // The server leaves its own process's changes out, and the test is that process.
    let tree = world.tree.to_str().unwrap();
    let script = format!("echo longer > '{tree}/a'; : > '{tree}/b'");
    let status = std::process::Command::new("sh")
        .args(["-c", &script])
        .status()
        .unwrap();
    assert!(status.success());
    let wanted = [
        everything(&a.handle),
        RecallItem {
            handle: root.clone(),
            what: Recall::Entry(name("b")),
        },
    ];
    while !wanted
        .iter()
        .all(|item| items(&reader.notices).contains(item))
    {
        reader.receive().await.unwrap();
    }
    assert_eq!(reader.lookup(&root, "a").await.unwrap().attributes.size, 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recall_that_a_lost_connection_swallowed_is_sent_again() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    let session = new_session();
    let role = ConnectionRole::Main;
    let mut reader = world
        .client_as(&world.admin, session, role, Mode::Tls)
        .await;
    let mut writer = world.client().await;
    let root = writer.attach().await.handle;
    let a = made(&writer.step(create(&root, "a", None)).await);
    reader.attach_while(&mut writer).await;
    reader.lookup(&root, "a").await.unwrap();
    drop(reader);
    let change = base::AttributeChange {
        mode: Some(0o600),
        ..Default::default()
    };
    let step = Step::SetAttributes {
        target: at(&a),
        change,
        open: None,
    };
    let sending = writer.send_steps(vec![step]).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let begun = Instant::now();
    let mut reader = world
        .client_as(&world.admin, session, role, Mode::Tls)
        .await;
    reader.receive().await.unwrap();
    assert_eq!(items(&reader.notices), [everything(&a)]);
    writer.reply(sending).await.unwrap();
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "it waited for the lease to end"
    );
}

/// It holds others up once, and then no more, in whatever sessions it comes.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_alive_and_does_not_obey_is_ended_and_gets_no_leases() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    let credential = world.enrol(CredentialKind::Host).await;
    let enter = || world.client_as(&credential, new_session(), ConnectionRole::Main, Mode::Tls);
    let (mut refusing, mut writer) = (enter().await, world.client().await);
    let root = writer.attach().await.handle;
    let a = made(&writer.step(create(&root, "a", None)).await);
    refusing.attach_while(&mut writer).await;
    let leased = refusing.lookup(&root, "a").await.unwrap().lease;
    assert_eq!(leased, Lease::Read);
    refusing.obeys = false;
    let refusing = tokio::spawn(refusing.stay_alive());
    let begun = Instant::now();
    writer.write_while_alive(&a).await;
    let waited = begun.elapsed();
    let bounds = [0, 5].map(|more| RECALL_TIME_MAX + Duration::from_secs(more));
    assert!(waited >= bounds[0] && waited < bounds[1], "{waited:?}");
    refusing.await.unwrap();
    let mut again = enter().await;
    again.obeys = false;
    again.attach_while(&mut writer).await;
    let leased = again.lookup(&root, "a").await.unwrap().lease;
    assert_eq!(leased, Lease::None);
    let again = tokio::spawn(again.stay_alive());
    let begun = Instant::now();
    writer.write_while_alive(&a).await;
    let waited = begun.elapsed();
    assert!(waited < Duration::from_secs(2), "{waited:?}");
    // Nobody else is the worse for it.
    let leased = writer.lookup(&root, "a").await.unwrap().lease;
    assert_eq!(leased, Lease::Read);
    again.abort();
}

impl Client {
    /// Gives a sign of life every second until the server ends it.
    async fn stay_alive(mut self) {
        loop {
            let id = self.send(&Request::Ping).await;
            if self.reply(id).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// Writes to a file and waits for it, however long that takes.
    async fn write_while_alive(&mut self, file: &Handle) {
        let mut request = crate::client::frame(
            wire::frame::FrameKind::Request,
            self.new_id(),
            &self.compound(vec![write(file, None, 0, 2)]),
        );
        request.payload = Bytes::from_static(b"xy").into();
        let id = request.request.0;
        self.send_frame(request).await;
        while !self.replies.contains_key(&RequestId(id)) {
            assert_eq!(self.call(&Request::Ping).await, Reply::Done);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let (reply, _) = self.reply(id).await.unwrap();
        assert!(
            matches!(&reply, Reply::Files(files) if files.results[0].is_ok()),
            "{reply:?}"
        );
    }

    /// Enters the volume while another client obeys.
    async fn attach_while(&mut self, other: &mut Client) {
        let step = Step::Attach {
            volume: "lab".to_owned(),
        };
        let id = self.send_steps(vec![step]).await;
        self.wait_while(other, id).await.unwrap();
    }

    async fn create_while(
        &mut self,
        other: &mut Client,
        parent: &Handle,
    ) -> Result<StepReply, base::FsError> {
        let id = self.send_steps(vec![create(parent, "other", None)]).await;
        self.wait_while(other, id).await
    }

    async fn wait_while(
        &mut self,
        other: &mut Client,
        id: u64,
    ) -> Result<StepReply, base::FsError> {
        let obeyed = other.obeys;
        other.obeys = true;
        let reply = tokio::select! {
            reply = self.reply(id) => reply.unwrap().0,
            () = async { while other.receive().await.is_ok() {} } => panic!("the other one left"),
        };
        other.obeys = obeyed;
        match reply {
            Reply::Files(mut reply) => reply.results.remove(0),
            other => panic!("{other:?}"),
        }
    }
}

/// Its client believes what the run before has told it until it has heard of this one.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_run_before_has_leased_is_recalled_from_who_comes_back() {
    if !is_root() {
        return;
    }
    let mut world = World::new().await;
    let (reading, writing) = (new_session(), new_session());
    let role = ConnectionRole::Main;
    let admin = world.admin.clone();
    let mut reader = world.client_as(&admin, reading, role, Mode::Tls).await;
    let mut writer = world.client_as(&admin, writing, role, Mode::Tls).await;
    let root = writer.attach().await.handle;
    let a = made(&writer.step(create(&root, "a", None)).await);
    reader.attach_while(&mut writer).await;
    reader.lookup(&root, "a").await.unwrap();
    drop((reader, writer));
    world.restart().await;
    let mut writer = world.client_as(&admin, writing, role, Mode::Tls).await;
    writer.attach().await;
    let change = base::AttributeChange {
        mode: Some(0o600),
        ..Default::default()
    };
    let step = Step::SetAttributes {
        target: at(&a),
        change,
        open: None,
    };
    let sending = writer.send_steps(vec![step]).await;
    let early = tokio::time::timeout(Duration::from_millis(500), writer.reply(sending)).await;
    assert!(early.is_err(), "another one believes the old mode");
    let mut reader = world.client_as(&admin, reading, role, Mode::Tls).await;
    reader.receive().await.unwrap();
    // It has forgotten everything when it says so; it never had a directory alone.
    assert!(matches!(reader.notices[..], [Notice::Forget { .. }]));
    writer.reply(sending).await.unwrap();
    // And has nothing more to forget, but what this run has told it.
    writer.step(create(&root, "b", None)).await.unwrap();
    assert_eq!(reader.notices.len(), 1);
}

/// It may have created files there that this run has not heard of.
#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_a_session_of_the_run_before_had_alone_is_used_when_it_is_back() {
    if !is_root() {
        return;
    }
    let mut world = World::new().await;
    let (making, looking) = (new_session(), new_session());
    let (role, admin) = (ConnectionRole::Main, world.admin.clone());
    let mut maker = world.client_as(&admin, making, role, Mode::Tls).await;
    let mut looker = world.client_as(&admin, looking, role, Mode::Tls).await;
    let root = maker.attach().await.handle;
    looker.attach_while(&mut maker).await;
    let making_d = Step::MakeDirectory {
        parent: at(&root),
        name: name("d"),
        mode: 0o755,
        umask: 0,
    };
    let d = made(&maker.step(making_d).await);
    drop((maker, looker));
    world.restart().await;
    let mut looker = world.client_as(&admin, looking, role, Mode::Tls).await;
    let lookup = || Step::Lookup {
        parent: at(&d),
        name: name("ahead"),
        inline_bytes_max: 0,
    };
    let sending = looker.send_steps(vec![lookup()]).await;
    let early = tokio::time::timeout(Duration::from_millis(500), looker.reply(sending)).await;
    assert!(early.is_err(), "somebody may have created it");
    let mut maker = world.client_as(&admin, making, role, Mode::Tls).await;
    maker.obeys = false;
    while maker.notices.len() < 2 {
        maker.receive().await.unwrap();
    }
    let [Notice::Settle { id: settle }, Notice::Forget { id: forget }] = maker.notices[..] else {
        panic!("{:?}", maker.notices);
    };
    // Neither waits for the other: what it sends is answered as soon as others have forgotten.
    let file = Step::CreateFile {
        parent: at(&d),
        name: name("ahead"),
        mode: 0o644,
        umask: 0,
        change: base::AttributeChange::default(),
        bytes: 0,
    };
    made(&maker.step(file).await);
    maker.send(&Request::RecallDone(settle)).await;
    let found = format!("{:?}", looker.reply(sending).await.unwrap());
    assert!(found.contains("Found { entry: Some"), "{found}");
    maker.send(&Request::RecallDone(forget)).await;
    maker.obeys = true;
    // Nobody is asked twice.
    looker.step(lookup()).await.unwrap();
    assert_eq!(maker.notices.len(), 2);
}

/// However long its creations take on a slow line: it is there.
#[tokio::test(flavor = "multi_thread")]
async fn who_is_back_in_time_is_waited_for_beyond_it() {
    if !is_root() {
        return;
    }
    let mut world = World::new().await;
    let (making, looking) = (new_session(), new_session());
    let (role, admin) = (ConnectionRole::Main, world.admin.clone());
    let mut maker = world.client_as(&admin, making, role, Mode::Tls).await;
    let root = maker.attach().await.handle;
    made(&maker.step(create(&root, "a", None)).await);
    drop(maker);
    world.restart().await;
    let mut maker = world.client_as(&admin, making, role, Mode::Tls).await;
    maker.obeys = false;
    while maker.notices.len() < 2 {
        maker.receive().await.unwrap();
    }
    let mut looker = world.client_as(&admin, looking, role, Mode::Tls).await;
    let attach = Step::Attach {
        volume: "lab".to_owned(),
    };
    let sending = looker.send_steps(vec![attach]).await;
    let late = LEASE_TIME + Duration::from_secs(2);
    let begun = Instant::now();
    while begun.elapsed() < late {
        // It lives.
        maker.send(&Request::Ping).await;
        let early = tokio::time::timeout(Duration::from_millis(500), looker.reply(sending)).await;
        assert!(early.is_err(), "{:?}", begun.elapsed());
    }
    for notice in maker.notices.clone() {
        maker.send(&Request::RecallDone(notice.id())).await;
    }
    looker.reply(sending).await.unwrap();
}
