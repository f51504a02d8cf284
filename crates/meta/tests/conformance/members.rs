//! A cluster whose members are killed or stopped; its history, certificates and users.

use crate::entries::{Shared, all, put, read};
use crate::history::{check, record};
use crate::killed::{WRITERS, version, write};
use crate::watches::{lost, next};
use crate::worlds::{Cluster, MEMBERS, Prefix, World};
use base::limits::{META_SEAT_TIME, META_TIME_MAX};
use etcd_client::{Client, ConnectOptions, Permission, PermissionType};
use meta::{Etcd, EtcdOptions, KeyRange, MetaError, Revision, Tls, Transaction, User, campaign};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// A cluster for one test.
fn own_cluster() -> Option<Prefix> {
    let cluster = Cluster::begin(MEMBERS, &|_| Vec::new())?;
    Some(Prefix::of(Arc::new(cluster)))
}

/// Kills one member after the other until it is over.
fn kill_members(prefix: &Prefix, is_over: &Arc<AtomicBool>) -> tokio::task::JoinHandle<usize> {
    let (cluster, is_over) = (Arc::clone(&prefix.cluster), Arc::clone(is_over));
    tokio::task::spawn_blocking(move || {
        let mut kills = 0;
        while !is_over.load(Ordering::Relaxed) {
            let member = kills % MEMBERS;
            cluster.kill(member);
            kills += 1;
            std::thread::sleep(Duration::from_millis(700));
            cluster.start(member);
            std::thread::sleep(Duration::from_millis(2500));
        }
        kills
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_is_there_whichever_member_is_killed() {
    let Some(prefix) = own_cluster() else {
        return;
    };
    let (one, other) = (prefix.open().await, prefix.open().await);
    let is_over = Arc::new(AtomicBool::new(false));
    let killing = kill_members(&prefix, &is_over);
    let end = Instant::now() + Duration::from_secs(12);
    let writers = (0..WRITERS).map(|writer| {
        let engine = Arc::clone(if writer % 2 == 0 { &one } else { &other });
        tokio::spawn(async move {
            let mut done = 0;
            while Instant::now() < end {
                done += u64::from(is_done(&engine, write(&engine, writer, done + 1).await).await);
            }
            done
        })
    });
    let mut sum = 0;
    for (writer, done) in writers.collect::<Vec<_>>().into_iter().enumerate() {
        let done = done.await.unwrap();
        assert_eq!(version(&one, writer).await, done);
        sum += done;
    }
    is_over.store(true, Ordering::Relaxed);
    let kills = killing.await.unwrap();
    println!("{sum} transactions, {kills} kills");
    assert!(sum > 50 && kills >= 3, "{sum} and {kills}");
}

/// Whether a transaction has happened, finding it out if that is unknown.
async fn is_done(engine: &Shared, mut outcome: Result<meta::Committed, MetaError>) -> bool {
    for _ in 0..10 {
        match outcome {
            Ok(_) => return true,
            Err(MetaError::Unavailable(_)) => return false,
            Err(MetaError::Unknown(id)) => outcome = engine.outcome(id).await,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("no outcome");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_clients_see_has_one_order_while_members_are_killed() {
    let Some(prefix) = own_cluster() else {
        return;
    };
    let engines = [prefix.open().await, prefix.open().await];
    let mut watch = engines[0]
        .watch(&KeyRange::all(), Revision(0))
        .await
        .unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let killing = kill_members(&prefix, &is_over);
    let events = record(&engines, 6, 400).await;
    is_over.store(true, Ordering::Relaxed);
    println!("{} kills", killing.await.unwrap());
    let (committed, refused) = check(&events);
    assert!(committed > 40 && refused > 10, "{committed} and {refused}");
    // The watch has come through as well: what it tells makes the same entries.
    let last = put(&engines[1], b"end", b"").await;
    let mut told = std::collections::BTreeMap::new();
    loop {
        let changes = next(&mut watch).await;
        for changed in changes.changed {
            match changed {
                meta::Changed::Put(key, value) => told.insert(key, value),
                meta::Changed::Deleted(key) => told.remove(&key),
            };
        }
        if changes.revision == last {
            break;
        }
    }
    assert_eq!(
        told.into_iter().collect::<Vec<_>>(),
        all(&engines[0], &KeyRange::all()).await
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_outcome_is_said_and_found_out() {
    let Some(prefix) = own_cluster() else {
        return;
    };
    let engine = prefix.open().await;
    put(&engine, b"a", b"0").await;
    for member in [0, 1] {
        prefix.cluster.signal(member, "-STOP");
    }
    let writing = (1..=8).map(|index| {
        let engine = Arc::clone(&engine);
        let key = format!("a{index}");
        tokio::spawn(async move { engine.commit(Transaction::new().put(key, b"1")).await })
    });
    let begin = Instant::now();
    let mut unknown = Vec::new();
    for (index, outcome) in writing.collect::<Vec<_>>().into_iter().enumerate() {
        match outcome.await.unwrap() {
            Err(MetaError::Unknown(id)) => unknown.push((index + 1, id)),
            Err(MetaError::Unavailable(_)) => {}
            other => panic!("{other:?} without a majority"),
        }
    }
    assert!(begin.elapsed() < META_TIME_MAX * 2, "{:?}", begin.elapsed());
    assert!(!unknown.is_empty());
    let reading = engine.get(b"a").await;
    assert!(
        matches!(reading, Err(MetaError::Unavailable(_))),
        "{reading:?}"
    );
    for member in [0, 1] {
        prefix.cluster.signal(member, "-CONT");
    }
    for (index, id) in unknown {
        let outcome = engine.outcome(id).await;
        let has_happened = match outcome {
            Ok(_) => true,
            Err(MetaError::Unavailable(_)) => false,
            Err(MetaError::Unknown(_)) => is_done(&engine, outcome).await,
            Err(error) => panic!("{error}"),
        };
        println!("{index} has happened: {has_happened}");
        let key = format!("a{index}");
        assert_eq!(read(&engine, key.as_bytes()).await.is_some(), has_happened);
        let again = engine.outcome(id).await;
        assert!(matches!(again, Err(MetaError::Forgotten(_))), "{again:?}");
    }
    assert!(put(&engine, b"a", b"2").await > Revision(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_that_was_compacted_is_said_to_be_lost() {
    let Some(prefix) = own_cluster() else {
        return;
    };
    let engine = prefix.open().await;
    let begin = put(&engine, b"a", b"").await;
    for index in 0..20 {
        put(&engine, &[b'b', index], b"").await;
    }
    let page = engine.range(&KeyRange::all(), 5, None).await.unwrap();
    let last = put(&engine, b"z", b"").await;
    let mut client = Client::connect(prefix.cluster.endpoints(), None)
        .await
        .unwrap();
    client.compact(last.0.cast_signed(), None).await.unwrap();
    let mut watch = engine.watch(&KeyRange::all(), begin).await.unwrap();
    let oldest = lost(&mut watch).await;
    assert!(oldest > begin && oldest <= last, "{oldest}");
    let rest = KeyRange::all().after(&page.entries[4].key);
    let next_page = engine.range(&rest, 5, Some(page.revision)).await;
    assert!(
        matches!(next_page, Err(MetaError::HistoryLost { .. })),
        "{next_page:?}"
    );
    let mut watch = engine.watch(&KeyRange::all(), last).await.unwrap();
    let more = put(&engine, b"more", b"").await;
    assert_eq!(next(&mut watch).await.revision, more);
}

/// A leader whose process ends says nothing; here its tasks end.
#[test]
fn the_seat_of_a_leader_who_is_silent_is_given_to_the_next() {
    let Some(prefix) = Prefix::of_cluster() else {
        return;
    };
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(2).enable_all().build().unwrap()
    };
    let (first, second) = (runtime(), runtime());
    let leadership = first.block_on(async {
        let engine = prefix.open().await;
        let leadership = engine.lead("calendar", "first").await.unwrap();
        put(&engine, b"a", b"first").await;
        leadership
    });
    first.shutdown_background();
    second.block_on(async {
        let engine = prefix.open().await;
        let held = engine.lead("calendar", "second").await;
        assert!(matches!(held, Err(MetaError::Held { holder, .. }) if holder == "first"));
        let begin = Instant::now();
        let limit = META_SEAT_TIME * 3;
        let next = campaign(&*engine, "calendar", "second", limit)
            .await
            .unwrap();
        println!("the seat was vacant after {:?}", begin.elapsed());
        assert!(next.epoch() > leadership.epoch());
        assert!(!leadership.is_trusted());
        let late = Transaction::new()
            .guarded_by(&leadership)
            .put(b"a", b"late");
        let late = engine.commit(late).await;
        assert!(matches!(late, Err(MetaError::Deposed { .. })), "{late:?}");
        let guarded = Transaction::new().guarded_by(&next).put(b"a", b"second");
        engine.commit(guarded).await.unwrap();
    });
}

struct Pem {
    authority: String,
    certificate: String,
    key: String,
}

fn certificates() -> Pem {
    let authority_key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let signed = authority.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate().unwrap();
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let certificate = CertificateParams::new(names).unwrap();
    let certificate = certificate.signed_by(&key, &issuer).unwrap();
    Pem {
        authority: signed.pem(),
        certificate: certificate.pem(),
        key: key.serialize_pem(),
    }
}

/// An encrypted cluster of one member, which wants a certificate of its clients.
fn encrypted(directory: &std::path::Path, pem: &Pem) -> Option<Cluster> {
    let write = |name: &str, text: &str| {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let arguments = vec![
        format!("--cert-file={}", write("certificate", &pem.certificate)),
        format!("--key-file={}", write("key", &pem.key)),
        format!("--trusted-ca-file={}", write("authority", &pem.authority)),
        "--client-cert-auth=true".to_owned(),
    ];
    Cluster::begin(1, &move |_| arguments.clone())
}

/// Users `root` and `azekura`, who may read and write what begins with `allowed/`.
async fn make_users(cluster: &Cluster, tls: etcd_client::TlsOptions) {
    let endpoints: Vec<_> = cluster
        .endpoints()
        .iter()
        .map(|at| format!("https://{at}"))
        .collect();
    let options = ConnectOptions::new().with_tls(tls);
    let mut client = Client::connect(endpoints, Some(options)).await.unwrap();
    while client.status().await.is_err() {
        sleep(Duration::from_millis(100)).await;
    }
    client.user_add("root", "secret", None).await.unwrap();
    client.role_add("root").await.unwrap();
    client.user_grant_role("root", "root").await.unwrap();
    client.user_add("azekura", "secret", None).await.unwrap();
    client.role_add("azekura").await.unwrap();
    let allowed = Permission::new(PermissionType::Readwrite, "allowed/").with_prefix();
    client
        .role_grant_permission("azekura", allowed)
        .await
        .unwrap();
    client.user_grant_role("azekura", "azekura").await.unwrap();
    client.auth_enable().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_encrypted_cluster_with_users_lets_in_whom_it_should() {
    let (directory, pem) = (tempfile::tempdir().unwrap(), certificates());
    let Some(cluster) = encrypted(directory.path(), &pem) else {
        return;
    };
    let identity = etcd_client::Identity::from_pem(&pem.certificate, &pem.key);
    let authority = etcd_client::Certificate::from_pem(&pem.authority);
    let admin = etcd_client::TlsOptions::new()
        .ca_certificate(authority)
        .identity(identity);
    make_users(&cluster, admin).await;
    let tls = Tls {
        authority: pem.authority.clone(),
        identity: Some((pem.certificate.clone(), pem.key.clone())),
        server_name: Some("localhost".to_owned()),
    };
    let user = |password: &str| User {
        name: "azekura".to_owned(),
        password: password.to_owned(),
    };
    let options = |prefix: &str| EtcdOptions::new(cluster.endpoints(), prefix);
    let let_in = options("allowed")
        .with_tls(tls.clone())
        .with_user(user("secret"));
    assert!(!format!("{let_in:?}").contains("secret") && !format!("{let_in:?}").contains("BEGIN"));
    let engine: Shared = Etcd::open(let_in).await.unwrap();
    let at = put(&engine, b"a", b"1").await;
    let leadership = engine.lead("calendar", "one").await.unwrap();
    assert!(leadership.epoch() > at);
    let mut watch = engine.watch(&KeyRange::all(), Revision(0)).await.unwrap();
    assert_eq!(next(&mut watch).await.revision, at);
    let refused = [
        options("allowed")
            .with_tls(tls.clone())
            .with_user(user("guessed")),
        options("elsewhere")
            .with_tls(tls.clone())
            .with_user(user("secret")),
        options("allowed").with_tls(tls.clone()),
    ];
    for options in refused {
        let opened = Etcd::open(options).await.err();
        assert!(matches!(opened, Some(MetaError::Refused(_))), "{opened:?}");
    }
    let stranger = Tls {
        authority: certificates().authority,
        ..tls.clone()
    };
    let opened = Etcd::open(
        options("allowed")
            .with_tls(stranger)
            .with_user(user("secret")),
    )
    .await;
    let error = opened.err();
    assert!(
        matches!(
            error,
            Some(MetaError::Unavailable(_) | MetaError::Refused(_))
        ),
        "{error:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_ours_is_not_touched() {
    let Some(prefix) = Prefix::of_cluster() else {
        return;
    };
    // A neighbour, opened first because that waits for the members.
    drop(Prefix::of(Arc::clone(&prefix.cluster)).open().await);
    let mut client = Client::connect(prefix.cluster.endpoints(), None)
        .await
        .unwrap();
    let key = format!("{}/f", prefix.name);
    client
        .put(key.clone(), "something else", None)
        .await
        .unwrap();
    let foreign = Etcd::open(prefix.options()).await.err();
    assert!(
        matches!(foreign, Some(MetaError::Foreign(_))),
        "{foreign:?}"
    );
    client
        .put(key.clone(), "azekura meta 2", None)
        .await
        .unwrap();
    let newer = Etcd::open(prefix.options()).await.err();
    assert!(
        matches!(newer, Some(MetaError::Newer { found: 2, known: 1 })),
        "{newer:?}"
    );
    let neighbour = format!("{}0", prefix.name);
    client
        .put(neighbour.clone(), "neighbour", None)
        .await
        .unwrap();
    client.delete(key, None).await.unwrap();
    let engine = prefix.open().await;
    put(&engine, b"a", b"").await;
    let everything = Transaction::new().delete_range(&KeyRange::all());
    engine.commit(everything).await.unwrap();
    let left = client.get(neighbour, None).await.unwrap();
    assert_eq!(left.kvs().len(), 1);
    let nowhere = Etcd::open(EtcdOptions::new(Vec::<String>::new(), "a"))
        .await
        .err();
    assert!(
        matches!(nowhere, Some(MetaError::Invalid(_))),
        "{nowhere:?}"
    );
}
