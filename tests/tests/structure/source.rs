//! The modules of a crate: their files, names, paths and types. Code for tests alone is left out.

use proc_macro2::{Delimiter, Group, Spacing, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Segments of a path, such as `crate`, `table`, `Table`.
pub(super) type Names = Vec<String>;

/// A file of a crate, by its path below `src`.
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) lines: usize,
}

#[derive(Default)]
struct Module {
    /// Position in [`Source::files`].
    file: usize,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    /// Names of its own items.
    items: BTreeSet<String>,
    /// Paths by the names that `use` gives them.
    imports: BTreeMap<String, Names>,
    /// Modules whose names it has by `use ...::*`.
    globs: Vec<Names>,
    /// Names that `pub use` gives to others.
    exports: BTreeSet<String>,
    /// Words of its code without `use` and `mod`.
    words: BTreeSet<String>,
    /// Paths in its code.
    paths: Vec<Names>,
    /// Structs with the number of their fields.
    structs: Vec<(String, usize)>,
    /// Types of its `impl` blocks.
    impls: Vec<Names>,
}

/// A struct or a type with `impl` blocks.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Type {
    /// Position of the file that defines it.
    pub(super) file: usize,
    pub(super) name: String,
}

/// Source text of a crate.
#[derive(Default)]
pub(super) struct Source {
    pub(super) files: Vec<File>,
    modules: Vec<Module>,
}

impl Source {
    /// Reads a crate. `text_of` returns the text of a file below `src`, if there is one.
    pub(super) fn read(text_of: &dyn Fn(&Path) -> Option<String>) -> Self {
        let mut source = Self::default();
        let root = ["lib.rs", "main.rs"].into_iter().find_map(|name| Some((name, text_of(Path::new(name))?)));
        let (name, text) = root.expect("a crate has a root");
        source.add_file(Path::new(name), Path::new(""), &text, None, text_of);
        source
    }

    fn add_file(
        &mut self,
        path: &Path,
        folder: &Path,
        text: &str,
        parent: Option<usize>,
        text_of: &dyn Fn(&Path) -> Option<String>,
    ) -> usize {
        let tokens: TokenStream = text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        self.files.push(File { path: path.to_owned(), lines: text.lines().count() });
        let module = self.modules.len();
        self.modules.push(Module { file: self.files.len() - 1, parent, ..Module::default() });
        self.add_items(module, folder, tokens, text_of);
        module
    }

    fn add_items(
        &mut self,
        module: usize,
        folder: &Path,
        tokens: TokenStream,
        text_of: &dyn Fn(&Path) -> Option<String>,
    ) {
        for Item { is_public, tokens } in items(tokens) {
            let word = |at: usize| tokens.get(at).and_then(ident).unwrap_or_default();
            match &*word(0) {
                "mod" => {
                    let (name, below) = (word(1), folder.join(word(1)));
                    let child = match tokens.get(2) {
                        Some(TokenTree::Group(body)) => {
                            let child = self.modules.len();
                            let file = self.modules[module].file;
                            self.modules.push(Module { file, parent: Some(module), ..Module::default() });
                            self.add_items(child, &below, body.stream(), text_of);
                            Some(child)
                        }
                        _ => [folder.join(format!("{name}.rs")), below.join("mod.rs")].iter().find_map(|path| {
                            let text = text_of(path)?;
                            Some(self.add_file(path, &below, &text, Some(module), text_of))
                        }),
                    };
                    self.modules[module].children.extend(child.map(|child| (name, child)));
                }
                "use" => {
                    let module = &mut self.modules[module];
                    for (path, name) in imports(&tokens[1..]) {
                        if name == "*" {
                            module.globs.push(path);
                        } else {
                            module.exports.extend(is_public.then(|| name.clone()));
                            module.imports.insert(name, path);
                        }
                    }
                }
                first => {
                    let module = &mut self.modules[module];
                    module.structs.extend((first == "struct").then(|| (word(1), fields(&tokens))));
                    let is_impl = first == "impl" || first == "unsafe" && word(1) == "impl";
                    module.impls.extend(is_impl.then(|| of_impl(&tokens)));
                    module.add_code(&flat(tokens));
                }
            }
        }
    }

    /// Returns the file of the item to which a path of a module leads; `None` if the item is in another crate, or this
    /// is no path.
    fn resolve(&self, module: usize, path: &[String], depth: usize) -> Option<usize> {
        let (mut at, mut rest) = (module, path);
        match &*path[0] {
            "crate" => (at, rest) = (0, &path[1..]),
            "self" => rest = &path[1..],
            "super" => {
                while rest.first().is_some_and(|name| name == "super") {
                    at = self.modules[at].parent?;
                    rest = &rest[1..];
                }
            }
            name if !self.modules[at].knows(name) => return self.by_glob(at, path, depth),
            _ => {}
        }
        if depth > 20 {
            return None;
        }
        while let Some(name) = rest.first() {
            let here = &self.modules[at];
            if let Some(child) = here.children.get(name) {
                (at, rest) = (*child, &rest[1..]);
            } else if here.items.contains(name) {
                break;
            } else if let Some(import) = here.imports.get(name).filter(|import| import.as_slice() != rest) {
                return self.resolve(at, &[import, &rest[1..]].concat(), depth + 1);
            } else {
                return self.by_glob(at, rest, depth).or(Some(here.file));
            }
        }
        Some(self.modules[at].file)
    }

    fn by_glob(&self, module: usize, path: &[String], depth: usize) -> Option<usize> {
        if depth > 20 {
            return None;
        }
        let has = |glob: &Names| {
            let (file, first) = (self.resolve(module, glob, depth + 1)?, &path[0]);
            let is_there = self.modules.iter().any(|other| other.file == file && other.knows(first));
            is_there.then(|| self.resolve(module, &[glob, path].concat(), depth + 1)).flatten()
        };
        self.modules[module].globs.iter().find_map(has)
    }

    /// Returns the files that each file uses, each with the paths that lead to it.
    pub(super) fn uses(&self) -> Vec<BTreeMap<usize, BTreeSet<String>>> {
        let mut uses = vec![BTreeMap::<usize, BTreeSet<String>>::new(); self.files.len()];
        for (number, module) in self.modules.iter().enumerate() {
            // A name that only others have from here is an entry of an index.
            let is_used =
                |(name, _): &(&String, &Names)| !module.exports.contains(*name) || module.words.contains(*name);
            let imports = module.imports.iter().filter(is_used).map(|(_, path)| path);
            let known = |path: &&Names| matches!(&*path[0], "crate" | "self" | "super") || module.knows(&path[0]);
            for path in imports.chain(&module.globs).chain(&module.paths).filter(known) {
                if let Some(file) = self.resolve(number, path, 0).filter(|file| *file != module.file) {
                    uses[module.file].entry(file).or_default().insert(path.join("::"));
                }
            }
        }
        uses
    }

    /// Returns the structs with the number of their fields. Structs of macros are left out, because they are tables.
    pub(super) fn structs(&self) -> impl Iterator<Item = (Type, usize)> {
        self.modules.iter().flat_map(|module| {
            module.structs.iter().map(|(name, fields)| (Type { file: module.file, name: name.clone() }, *fields))
        })
    }

    /// Returns the types of the crate that have `impl` blocks, each with the files of these blocks.
    pub(super) fn impls(&self) -> BTreeMap<Type, BTreeSet<usize>> {
        let mut impls = BTreeMap::<Type, BTreeSet<usize>>::new();
        for (number, module) in self.modules.iter().enumerate() {
            for path in module.impls.iter().filter(|path| !path.is_empty()) {
                let name = path.last().expect("it is not empty").clone();
                if let Some(file) = self.resolve(number, path, 0) {
                    impls.entry(Type { file, name }).or_default().insert(module.file);
                }
            }
        }
        impls
    }
}

impl Module {
    fn knows(&self, name: &str) -> bool {
        self.children.contains_key(name) || self.items.contains(name) || self.imports.contains_key(name)
    }

    fn add_code(&mut self, code: &[Token]) {
        const NAMED: [&str; 9] = ["struct", "enum", "trait", "type", "const", "static", "fn", "union", "macro_rules"];
        for (at, token) in code.iter().enumerate() {
            let Token::Word(word) = token else { continue };
            self.words.insert(word.clone());
            let before = at.checked_sub(1).map(|at| &code[at]);
            // Neither a lifetime nor a pointer.
            if NAMED.contains(&&**word) && !matches!(before, Some(Token::Other('\'' | '*'))) {
                let next = code[at + 1..].iter().find(|token| !matches!(token, Token::Other('!')));
                self.items.extend(next.and_then(Token::word).cloned());
            }
            let is_first = !matches!(before, Some(Token::Colons | Token::Other('.' | '\'')));
            let path = path(&code[at..]);
            if is_first && path.len() > 1 {
                self.paths.push(path);
            }
        }
    }
}

/// A token of code without the structure of groups.
enum Token {
    Word(String),
    /// `::`
    Colons,
    Other(char),
}

impl Token {
    fn word(&self) -> Option<&String> {
        match self {
            Self::Word(word) => Some(word),
            _ => None,
        }
    }
}

fn flat(tokens: Vec<TokenTree>) -> Vec<Token> {
    fn add(tokens: impl IntoIterator<Item = TokenTree>, flat: &mut Vec<Token>) {
        let mut tokens = tokens.into_iter().peekable();
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Group(group) => {
                    flat.push(Token::Other('('));
                    add(group.stream(), flat);
                    flat.push(Token::Other(')'));
                }
                TokenTree::Ident(word) => flat.push(Token::Word(word.to_string())),
                TokenTree::Punct(c) if c.as_char() == ':' && c.spacing() == Spacing::Joint => {
                    let _second = tokens.next_if(|token| is_punct(token, ':'));
                    flat.push(Token::Colons);
                }
                TokenTree::Punct(c) => flat.push(Token::Other(c.as_char())),
                TokenTree::Literal(_) => flat.push(Token::Other('"')),
            }
        }
    }
    let mut flat = Vec::new();
    add(tokens, &mut flat);
    flat
}

/// Reads words with `::` between them.
fn path(code: &[Token]) -> Names {
    let words = code.iter().step_by(2).map_while(Token::word);
    let colons = 1 + code.iter().skip(1).step_by(2).take_while(|token| matches!(token, Token::Colons)).count();
    words.take(colons).cloned().collect()
}

/// An item without its attributes and visibility.
struct Item {
    is_public: bool,
    tokens: Vec<TokenTree>,
}

/// Returns the items of a module that are not for tests alone.
fn items(tokens: TokenStream) -> Vec<Item> {
    let (mut items, mut tokens) = (Vec::new(), tokens.into_iter().peekable());
    let (mut item, mut is_public, mut is_test) = (Vec::new(), false, false);
    while let Some(token) = tokens.next() {
        if item.is_empty() && is_punct(&token, '#') {
            let _inner = tokens.next_if(|token| is_punct(token, '!'));
            if let Some(TokenTree::Group(attribute)) = tokens.next() {
                let text: String = attribute.stream().to_string().split_whitespace().collect();
                is_test |= text == "cfg(test)" || text.starts_with("cfg(all(test,");
            }
            continue;
        }
        if item.is_empty() && ident(&token).is_some_and(|word| word == "pub") {
            is_public = true;
            let _scope = tokens.next_if(|token| is_group(token, Delimiter::Parenthesis));
            continue;
        }
        let ends = is_punct(&token, ';') || is_group(&token, Delimiter::Brace) && !ends_with_semicolon(&item);
        item.push(token);
        if ends {
            let tokens = std::mem::take(&mut item);
            items.extend((!is_test).then_some(Item { is_public, tokens }));
            (is_public, is_test) = (false, false);
        }
    }
    items
}

/// Tells whether an item that begins like this ends with a semicolon, so that braces do not end it.
fn ends_with_semicolon(item: &[TokenTree]) -> bool {
    let word = |at: usize| item.get(at).and_then(ident).unwrap_or_default();
    match &*word(0) {
        "use" | "type" | "static" => true,
        "const" => !["fn", "unsafe", "async", "extern"].contains(&&*word(1)),
        _ => false,
    }
}

fn ident(token: &TokenTree) -> Option<String> {
    match token {
        TokenTree::Ident(word) => Some(word.to_string()),
        _ => None,
    }
}

fn is_punct(token: &TokenTree, c: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == c)
}

fn is_group(token: &TokenTree, delimiter: Delimiter) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == delimiter)
}

/// Returns the paths of a `use`, each with the name that it gives.
fn imports(tokens: &[TokenTree]) -> Vec<(Names, String)> {
    let mut imports = Vec::new();
    add_imports(&Names::new(), tokens, &mut imports);
    imports
}

fn add_imports(before: &Names, tokens: &[TokenTree], imports: &mut Vec<(Names, String)>) {
    let trees = tokens.split(|token| is_punct(token, ',') || is_punct(token, ';'));
    for tree in trees.filter(|tree| !tree.is_empty()) {
        let (mut path, mut name) = (before.clone(), None);
        let mut tokens = tree.iter();
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Group(group) => {
                    add_imports(&path, &group.stream().into_iter().collect::<Vec<_>>(), imports);
                    path.clear();
                }
                TokenTree::Ident(word) if word == "as" => name = tokens.next().and_then(ident),
                TokenTree::Ident(word) => path.push(word.to_string()),
                TokenTree::Punct(c) if c.as_char() == '*' => name = Some("*".to_owned()),
                _ => {}
            }
        }
        if path.len() > 1 {
            path.pop_if(|last| last == "self");
        }
        if let Some(name) = name.or_else(|| path.last().cloned()).filter(|_| !path.is_empty()) {
            imports.push((path, name));
        }
    }
}

/// Returns the number of fields of a struct: of the single colons between its braces.
fn fields(item: &[TokenTree]) -> usize {
    let body = item.iter().find_map(|token| match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Some(Group::stream(group)),
        _ => None,
    });
    let (mut count, mut is_second) = (0, false);
    for token in body.into_iter().flatten() {
        if let TokenTree::Punct(c) = &token
            && c.as_char() == ':'
        {
            count += usize::from(c.spacing() == Spacing::Alone && !is_second);
            is_second = c.spacing() == Spacing::Joint;
        } else {
            is_second = false;
        }
    }
    count
}

/// Returns the path of the type of an `impl` block.
fn of_impl(item: &[TokenTree]) -> Names {
    let head = item.iter().take_while(|token| !is_group(token, Delimiter::Brace));
    let head: Vec<Token> = flat(head.cloned().collect());
    let is_word = |token: &Token, word: &str| token.word().is_some_and(|found| found == word);
    let begin = head.iter().position(|token| is_word(token, "impl")).map_or(0, |at| at + 1);
    let (mut depth, mut of) = (0, None);
    let mut at = begin;
    while at < head.len() {
        match &head[at] {
            Token::Other('<') => depth += 1,
            // Not an arrow.
            Token::Other('>') if !matches!(head[at - 1], Token::Other('-' | '=')) => depth -= 1,
            token if depth == 0 && is_word(token, "where") => break,
            token if depth == 0 && is_word(token, "for") && !matches!(head.get(at + 1), Some(Token::Other('<'))) => {
                of = None;
            }
            Token::Word(word) if depth == 0 && of.is_none() && !["mut", "dyn", "for"].contains(&&**word) => {
                let is_lifetime = matches!(head[at - 1], Token::Other('\''));
                of = (!is_lifetime).then(|| path(&head[at..]));
            }
            _ => {}
        }
        at += 1;
    }
    of.unwrap_or_default()
}
