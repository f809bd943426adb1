//! Rules about names: words that the glossary has replaced, and the form of test names.

use super::finding::{Debt, Rule};
use super::rules::{TEST_NAME, TEST_NAME_PARTS, TEST_NAME_STARTS};
use super::words::{ALLOWED, ANYWHERE, FUNCTION_PREFIXES, FUNCTIONS, MEMBERS, TYPES, Words};
use proc_macro2::{TokenStream, TokenTree};
use std::path::Path;
use syn::visit::{self, Visit};

/// Checks the names that one file declares, and the file's own.
pub(super) fn check(file: &Path, tree: &syn::File) -> Vec<Debt> {
    let mut visitor = Visitor { file, debts: Vec::new() };
    visitor.module_of_file();
    visitor.visit_file(tree);
    visitor.debts
}

struct Visitor<'a> {
    file: &'a Path,
    debts: Vec<Debt>,
}

/// What a name denotes; decides which table applies.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Type,
    Module,
    Variant,
    Field,
    Function,
}

impl Kind {
    fn noun(self) -> &'static str {
        match self {
            Self::Type => "type",
            Self::Module => "module",
            Self::Variant => "variant",
            Self::Field => "field",
            Self::Function => "function",
        }
    }

    /// The table of whole names.
    fn words(self) -> Words {
        match self {
            Self::Type | Self::Module => TYPES,
            Self::Variant | Self::Field => MEMBERS,
            Self::Function => FUNCTIONS,
        }
    }
}

/// Returns the banned word in `name` and its replacement.
fn banned(kind: Kind, name: &str) -> Option<(&'static str, &'static str)> {
    let name = snake_case(name.trim_start_matches("r#"));
    if ALLOWED.contains(&name.as_str()) {
        return None;
    }
    let padded = format!("_{name}_");
    let find = |words: Words, matches: &dyn Fn(&str) -> bool| {
        words.iter().find_map(|(words, instead)| Some((*words.iter().find(|word| matches(word))?, *instead)))
    };
    let is_prefix = |word: &str| matches!(kind, Kind::Function) && name.starts_with(word);
    find(ANYWHERE, &|word| padded.match_indices(word).any(|(at, _)| is_part(&padded, at, word.len())))
        .or_else(|| find(kind.words(), &|word| name == word))
        .or_else(|| find(FUNCTION_PREFIXES, &is_prefix))
}

/// Returns true if the part of `padded` at `at` stands between underscores.
fn is_part(padded: &str, at: usize, len: usize) -> bool {
    padded[..at].ends_with('_') && padded[at + len..].starts_with('_')
}

/// `HostInput` and `hostInput` become `host_input`, `N1N2Transfer` becomes `n1_n2_transfer`.
fn snake_case(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    let mut after_lower = false;
    for letter in name.chars() {
        if letter.is_uppercase() && after_lower {
            snake.push('_');
        }
        after_lower = letter.is_lowercase() || letter.is_ascii_digit();
        snake.extend(letter.to_lowercase());
    }
    snake
}

/// Returns the reason why a test must not have that name.
fn test_name_fault(name: &str) -> Option<String> {
    if name.len() > TEST_NAME {
        return Some(format!("{} characters, {TEST_NAME} are the most", name.len()));
    }
    if name.contains(char::is_uppercase) || name.contains("__") {
        return Some("not in snake_case".to_owned());
    }
    if let Some(start) = TEST_NAME_STARTS.iter().find(|start| name.starts_with(**start)) {
        return Some(format!("begins with {start}"));
    }
    let part = TEST_NAME_PARTS.iter().find(|part| name.contains(**part));
    part.map(|part| format!("has a relative clause ({part})"))
}

impl Visitor<'_> {
    fn name(&mut self, kind: Kind, name: &syn::Ident) {
        self.name_at(kind, &name.to_string(), name.span().start().line);
    }

    fn name_at(&mut self, kind: Kind, name: &str, line: usize) {
        if let Some((word, instead)) = banned(kind, name) {
            let message = format!("{} {name}: the glossary bans '{word}'; write {instead}", kind.noun());
            self.debts.push(Debt::new(Rule::BannedName, self.file, line, message));
        }
    }

    /// The name of the file or, for `mod.rs`, of its folder; `mod` declarations are not looked at a
    /// second time.
    fn module_of_file(&mut self) {
        let stem = |path: &Path| path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned();
        let name = match stem(self.file).as_str() {
            "mod" => self.file.parent().map(stem).unwrap_or_default(),
            name => name.to_owned(),
        };
        self.name_at(Kind::Module, &name, 1);
    }

    fn test_name(&mut self, name: &syn::Ident) {
        if let Some(fault) = test_name_fault(&name.to_string()) {
            let message = format!("test {name}: {fault}; write subject_condition_result");
            self.debts.push(Debt::new(Rule::TestName, self.file, name.span().start().line, message));
        }
    }

    fn fields(&mut self, fields: &syn::Fields) {
        for name in fields.iter().filter_map(|field| field.ident.as_ref()) {
            self.name(Kind::Field, name);
        }
    }

    /// Finds the functions between the tokens of `proptest!`; each is a test.
    fn proptests(&mut self, tokens: TokenStream) {
        let mut after_fn = false;
        for token in tokens {
            match &token {
                TokenTree::Ident(name) if after_fn => self.test_name(name),
                _ => {}
            }
            after_fn = matches!(&token, TokenTree::Ident(word) if word == "fn");
        }
    }
}

fn is_test_function(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| attribute.path().segments.last().is_some_and(|last| last.ident == "test"))
}

impl<'ast> Visit<'ast> for Visitor<'_> {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.name(Kind::Type, &item.ident);
        self.fields(&item.fields);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.name(Kind::Type, &item.ident);
        for variant in &item.variants {
            self.name(Kind::Variant, &variant.ident);
            self.fields(&variant.fields);
        }
    }

    fn visit_item_union(&mut self, item: &'ast syn::ItemUnion) {
        self.name(Kind::Type, &item.ident);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.name(Kind::Type, &item.ident);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.name(Kind::Type, &item.ident);
        visit::visit_item_trait(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if item.content.is_some() {
            self.name(Kind::Module, &item.ident);
        }
        visit::visit_item_mod(self, item);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if is_test_function(&item.attrs) {
            self.test_name(&item.sig.ident);
        } else {
            self.name(Kind::Function, &item.sig.ident);
        }
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.name(Kind::Function, &item.sig.ident);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        // A trait's methods are named where the trait is declared.
        if item.trait_.is_none() {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.name(Kind::Function, &item.sig.ident);
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        if call.path.segments.last().is_some_and(|last| last.ident == "proptest") {
            self.proptests(call.tokens.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(rule: Rule, file: &str, text: &str) -> Vec<String> {
        let tree = syn::parse_file(text).unwrap();
        let debts = check(Path::new(file), &tree).into_iter().filter(|debt| debt.rule == rule);
        debts.map(|debt| debt.finding.message).collect()
    }

    fn banned_in(text: &str) -> usize {
        found(Rule::BannedName, "crates/node/src/a.rs", text).len()
    }

    #[test]
    fn banned_names_are_found() {
        for text in [
            "struct Told;",
            "struct CrewError;",
            "enum Way { A }",
            "type Seen = u8;",
            "trait Asker {}",
            "struct A { kept: u8 }",
            "enum A { Given }",
            "enum A { B { who: u8 } }",
            "fn let_go() {}",
            "fn what_waits() {}",
            "impl A { fn goes_on(&self) {} }",
            "trait A { fn of_number(); }",
            "mod desk { fn a() {} }",
            "fn a() { struct Place; }",
        ] {
            assert_eq!(banned_in(text), 1, "{text}");
        }
    }

    #[test]
    fn ordinary_names_are_allowed() {
        for text in [
            "struct Placement; struct LastHeard { last_heard: u8 }",
            "fn place() { let told = 1; }",
            "fn shadowed() {} fn essay() {} fn lookup() {} fn task() {}",
            "impl Iterator for A { fn of_number() {} }",
            "fn a(said: u8) {}",
            "enum A { Of, Before, To }",
            "mod desk;",
        ] {
            assert_eq!(banned_in(text), 0, "{text}");
        }
    }

    #[test]
    fn banned_module_is_found_by_file() {
        let modules = |file: &str| found(Rule::BannedName, file, "fn a() {}");
        assert_eq!(modules("crates/node/src/host/door.rs").len(), 1);
        assert_eq!(modules("crates/node/src/crew/mod.rs").len(), 1);
        assert_eq!(modules("crates/node/src/host/queue.rs"), [""; 0]);
        assert_eq!(modules("crates/node/src/crew/queue.rs"), [""; 0], "the folder is reported by its mod.rs");
        let message = &modules("crates/node/src/host/door.rs")[0];
        assert!(message.starts_with("module door: the glossary bans 'door'; write handler"), "{message}");
    }

    #[test]
    fn test_name_faults_are_found() {
        let faults = |name: &str| {
            found(Rule::TestName, "crates/a/src/b.rs", &format!("#[test]\nfn {name}() {{}}")).pop().unwrap_or_default()
        };
        assert_eq!(faults("host_death_in_migration_keeps_buckets"), "");
        assert_eq!(faults("another_host_takes_over"), "");
        assert_eq!(faults(&"a".repeat(45)), "");
        assert!(faults(&"a".repeat(46)).contains("46 characters, 45 are the most"));
        assert!(faults("hostDeath").contains("snake_case"));
        for name in ["who_dies_is_gone", "what_is_left", "a_host_dies", "an_ue_moves", "the_host_dies"] {
            assert!(faults(name).contains("begins with"), "{name}");
        }
        for name in ["host_that_dies", "host_who_dies", "host_which_dies"] {
            assert!(faults(name).contains("relative clause"), "{name}");
        }
    }

    #[test]
    fn test_names_in_macros_are_found() {
        let tests = |text: &str| found(Rule::TestName, "crates/a/src/b.rs", text).len();
        assert_eq!(tests("#[tokio::test]\nasync fn a_host_dies() {}"), 1);
        assert_eq!(tests("proptest! { #[test] fn a_host_dies(b in 0..1) { let c = || 1; } }"), 1);
        assert_eq!(tests("proptest! { #[test] fn host_dies(b in 0..1) {} }"), 0);
        assert_eq!(tests("fn a_helper_of_tests() {}"), 0);
    }

    #[test]
    fn snake_case_splits_words() {
        assert_eq!(snake_case("HostInput"), "host_input");
        assert_eq!(snake_case("N1N2Transfer"), "n1_n2_transfer");
        assert_eq!(snake_case("let_go"), "let_go");
        assert_eq!(snake_case("MAX_TOLD"), "max_told");
    }
}
