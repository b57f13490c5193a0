//! The trees that a process has changed lately, as its last commit left them: its next transaction need not look them
//! up in the catalog.

use crate::format::tree_record::TreeRecord;
use crate::ids::CommitNo;
use crate::sync::Arc;

/// How many trees are kept.
const TREES_MAX: usize = 16;

/// Some of the trees as of one commit.
#[derive(Default)]
pub(crate) struct KnownTrees {
    commit: CommitNo,
    /// The last ones are those that were used last.
    trees: Vec<(Arc<[u8]>, TreeRecord)>,
}

impl KnownTrees {
    /// The tree of this name as of a commit, if that is known.
    pub(super) fn get(&self, commit: CommitNo, name: &[u8]) -> Option<&(Arc<[u8]>, TreeRecord)> {
        let mut trees = self.trees.iter().rev();
        trees.find(|(known, _)| self.commit == commit && **known == *name)
    }

    /// Goes on to the next commit, which left the trees that had the names in `stored` as `left` says.
    pub(super) fn follow<'n>(
        &mut self,
        before: CommitNo,
        commit: CommitNo,
        stored: impl Iterator<Item = &'n Arc<[u8]>> + Clone,
        left: impl Iterator<Item = (Arc<[u8]>, TreeRecord)>,
    ) {
        if self.commit != before {
            // Another process has committed meanwhile.
            self.trees.clear();
        }
        self.commit = commit;
        self.trees
            .retain(|(known, _)| !stored.clone().any(|name| name == known));
        self.trees.extend(left);
        let excess = self.trees.len().saturating_sub(TREES_MAX);
        self.trees.drain(..excess);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::tree_record::TreeKind;
    use crate::ids::PageNo;

    fn tree(name: &str, root: u64) -> (Arc<[u8]>, TreeRecord) {
        let record = TreeRecord {
            root: PageNo(root),
            ..TreeRecord::empty(TreeKind::default())
        };
        (name.as_bytes().into(), record)
    }

    fn root(known: &KnownTrees, commit: u64, name: &str) -> Option<u64> {
        let found = known.get(CommitNo(commit), name.as_bytes())?;
        Some(found.1.root.0)
    }

    #[test]
    fn trees_are_known_as_of_the_last_commit_only() {
        let mut known = KnownTrees::default();
        let (a, b) = (tree("a", 10), tree("b", 20));
        known.follow(
            CommitNo(1),
            CommitNo(2),
            [].iter(),
            [a.clone(), b.clone()].into_iter(),
        );
        assert_eq!(root(&known, 2, "a"), Some(10));
        assert_eq!(root(&known, 1, "a"), None);
        assert_eq!(root(&known, 3, "a"), None);
        // One changes, the other stays.
        known.follow(
            CommitNo(2),
            CommitNo(3),
            [&a.0].into_iter(),
            [tree("a", 11)].into_iter(),
        );
        assert_eq!(root(&known, 3, "a"), Some(11));
        assert_eq!(root(&known, 3, "b"), Some(20));
        // One gets the name of the other, which is dropped.
        known.follow(
            CommitNo(3),
            CommitNo(4),
            [&a.0, &b.0].into_iter(),
            [tree("b", 11)].into_iter(),
        );
        assert_eq!(root(&known, 4, "a"), None);
        assert_eq!(root(&known, 4, "b"), Some(11));
        // Somebody else commits number 5.
        known.follow(
            CommitNo(5),
            CommitNo(6),
            [].iter(),
            [tree("c", 30)].into_iter(),
        );
        assert_eq!(root(&known, 6, "b"), None);
        assert_eq!(root(&known, 6, "c"), Some(30));
        let many = (0..40).map(|n| tree(&n.to_string(), n));
        known.follow(CommitNo(6), CommitNo(7), [].iter(), many);
        assert_eq!(known.trees.len(), TREES_MAX);
        assert_eq!(root(&known, 7, "39"), Some(39));
    }
}
