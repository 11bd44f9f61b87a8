//! Sizes of the documents that a newcomer reads first.

use std::fs;

use super::root;

/// Bounds in bytes. They may shrink.
const BOUNDS: [(&str, usize); 3] = [("README.md", 9 << 10), ("ARCHITECTURE.md", 12 << 10), ("SECURITY.md", 6 << 10)];

#[test]
fn the_first_documents_are_short() {
    for (file, bound) in BOUNDS {
        let length = fs::read(root().join(file)).expect("it is there").len();
        assert!(
            length <= bound,
            "{file} has {length} bytes, and may have {bound}: move a part to docs/ or to a crate's front page"
        );
    }
}
