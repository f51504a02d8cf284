//! What the kernel has cached, and how it is told that it is no longer so.

use crate::mounted::{eventually, mounted};
use mount::kernel::{NodeId, NotifyError, Operation};
use std::fs;

/// Skips where the kernel is too old, with its reason.
fn supported(what: &str, result: Result<(), NotifyError>) -> bool {
    match result {
        Ok(()) => true,
        Err(NotifyError::Unsupported) => {
            eprintln!("skipped: this kernel has no {what}");
            false
        }
        Err(error) => panic!("{what}: {error}"),
    }
}

#[test]
fn a_new_epoch_has_every_name_looked_up_again() {
    let Some(mounted) = mounted() else { return };
    for name in ["one", "two"] {
        mounted.memory.state().tree.put(name, b"");
    }
    for _ in 0..3 {
        assert!(mounted.exists("one") && mounted.exists("two") && !mounted.exists("three"));
    }
    let lookups = || ["one", "two", "three"].map(|name| mounted.memory.lookups(name));
    assert_eq!(
        lookups(),
        [1; 3],
        "names are cached, also those that are not there"
    );
    mounted.memory.state().tree.take("one");
    mounted.memory.state().tree.put("three", b"");
    assert!(mounted.exists("one"), "the kernel cannot know");
    if !supported("epochs", mounted.notifier.inc_epoch()) {
        return;
    }
    assert!(!mounted.exists("one") && mounted.exists("two") && mounted.exists("three"));
    assert_eq!(lookups(), [2; 3]);
}

#[test]
fn a_new_epoch_does_not_wait_for_a_directory_in_use() {
    let Some(mounted) = mounted() else { return };
    // Lookups of a name that is not cached hold the directory; these are not answered until the
    // notification has returned.
    mounted.memory.state().tree.put("stuck", b"");
    let path = mounted.path("stuck");
    assert!(mounted.exists("stuck"), "attributes come with the lookup");
    let node = mounted.memory.state().tree.node_of("stuck");
    mounted.notifier.inval_inode(node, -1, 0).unwrap();
    let waiter = std::thread::spawn(move || fs::metadata(path).is_err());
    eventually("the attributes are asked for", || {
        mounted.memory.stuck() == 1
    });
    supported("epochs", mounted.notifier.inc_epoch());
    mounted.memory.release_all();
    assert!(waiter.join().unwrap());
}

#[test]
fn one_name_is_dropped_or_expired() {
    let Some(mounted) = mounted() else { return };
    mounted.memory.state().tree.put("name", b"");
    assert!(mounted.exists("name"));
    mounted.notifier.inval_entry(NodeId::ROOT, b"name").unwrap();
    assert!(mounted.exists("name"));
    assert_eq!(mounted.memory.lookups("name"), 2);
    mounted
        .notifier
        .expire_entry(NodeId::ROOT, b"name")
        .unwrap();
    assert!(mounted.exists("name"));
    assert_eq!(mounted.memory.lookups("name"), 3);
    let node = mounted.memory.state().tree.node_of("name");
    mounted.memory.state().tree.take("name");
    mounted
        .notifier
        .delete(NodeId::ROOT, node, b"name")
        .unwrap();
    assert!(!mounted.exists("name"));
}

#[test]
fn what_the_kernel_does_not_know_is_told_so() {
    let Some(mounted) = mounted() else { return };
    let notifier = &mounted.notifier;
    let unknown = Err(NotifyError::Unknown);
    assert_eq!(notifier.inval_inode(NodeId(99), 0, 0), unknown);
    assert_eq!(notifier.inval_entry(NodeId(99), b"name"), unknown);
    assert_eq!(notifier.inval_entry(NodeId::ROOT, b"name"), unknown);
    assert_eq!(notifier.store(NodeId(99), 0, b"data"), unknown);
    assert_eq!(notifier.delete(NodeId::ROOT, NodeId(99), b"name"), unknown);
}

#[test]
fn pages_are_kept_dropped_and_stored() {
    let Some(mounted) = mounted() else { return };
    mounted.memory.state().tree.put("file", b"first");
    let path = mounted.path("file");
    let reads = || {
        mounted
            .memory
            .count(|operation| matches!(operation, Operation::Read(_)))
    };
    assert_eq!(fs::read(&path).unwrap(), b"first");
    assert_eq!(fs::read(&path).unwrap(), b"first");
    assert_eq!(reads(), 1, "pages stay over opens");
    let node = mounted.memory.state().tree.node_of("file");
    mounted.memory.state().tree.inode(node).data = b"other".to_vec();
    assert_eq!(fs::read(&path).unwrap(), b"first", "the kernel cannot know");
    mounted.notifier.inval_inode(node, 0, 0).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"other");
    assert_eq!(reads(), 2);

    mounted
        .memory
        .state()
        .tree
        .put("pushed", b"pushed without a read");
    assert!(mounted.exists("pushed"));
    let node = mounted.memory.state().tree.node_of("pushed");
    mounted
        .notifier
        .store(node, 0, b"pushed without a read")
        .unwrap();
    assert_eq!(
        fs::read(mounted.path("pushed")).unwrap(),
        b"pushed without a read"
    );
    assert_eq!(reads(), 2);
}

#[test]
fn unused_inodes_are_forgotten_on_request() {
    let Some(mounted) = mounted() else { return };
    let nodes: Vec<NodeId> = (0..10)
        .map(|n| mounted.memory.state().tree.put(&format!("f{n}"), b""))
        .collect();
    for number in 0..10 {
        assert!(mounted.exists(&format!("f{number}")));
    }
    assert_eq!(mounted.memory.state().forgotten, 0);
    if supported("pruning", mounted.notifier.prune(&nodes)) {
        eventually("the inodes are forgotten", || {
            mounted.memory.state().forgotten == 10
        });
    }
}
