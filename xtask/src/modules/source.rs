//! Names that one file declares, imports and uses, read from its syntax tree.
//!
//! Plain data: threads parse files and pass this on. Items that only tests compile are left out.

use crate::tidy::is_test;
use proc_macro2::{TokenStream, TokenTree};
use std::collections::BTreeSet;
use syn::visit::{self, Visit};

/// Path as written, without `::` in front of it.
pub(super) type Words = Vec<String>;

/// Declarations and uses of one module within one file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Scope {
    /// Path below the module of the file; empty for the file's own module.
    pub(super) path: Words,
    /// Items other than modules.
    pub(super) items: BTreeSet<String>,
    pub(super) children: Vec<Child>,
    pub(super) imports: Vec<Import>,
    pub(super) uses: BTreeSet<Use>,
}

/// A module declared in another file: `mod name;`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Child {
    pub(super) name: String,
    /// Value of `#[path]`, relative to the folder of the declaring file.
    pub(super) file: Option<String>,
}

impl Child {
    pub(crate) fn new(item: &syn::ItemMod) -> Self {
        let file = item.attrs.iter().find(|attribute| attribute.path().is_ident("path")).and_then(string_of);
        Child { name: item.ident.to_string(), file }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

/// One name of a `use` item, or one glob.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Import {
    /// Name in this module; `None` for a glob.
    pub(super) name: Option<String>,
    pub(super) path: Words,
    pub(super) line: usize,
    /// `pub`, `pub(crate)` or another visibility is given: the name may only be passed on.
    pub(super) is_public: bool,
}

/// One path in the code.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Use {
    pub(super) path: Words,
    pub(super) line: usize,
}

/// Reads the scopes of one file; the first is the file's own module.
pub(crate) fn read(tree: &syn::File) -> Vec<Scope> {
    let mut reader = Reader { scopes: vec![Scope::default()], current: 0 };
    reader.visit_file(tree);
    reader.scopes
}

struct Reader {
    scopes: Vec<Scope>,
    current: usize,
}

impl Reader {
    fn scope(&mut self) -> &mut Scope {
        &mut self.scopes[self.current]
    }

    fn item(&mut self, name: &syn::Ident) {
        let name = name.to_string();
        self.scope().items.insert(name);
    }

    /// Records a path. A single lower-case word is a local variable more often than an item, so
    /// only calls of one count.
    fn used(&mut self, path: Words, line: usize) {
        const OTHERS: &[&str] = &["std", "core", "alloc", "Self"];
        if path.first().is_some_and(|first| first != "self" || path.len() > 1)
            && !OTHERS.contains(&path[0].as_str())
            && (path.len() > 1 || path[0].starts_with(char::is_uppercase))
        {
            self.scope().uses.insert(Use { path, line });
        }
    }

    fn import(&mut self, tree: &syn::UseTree, prefix: &[String], is_public: bool) {
        let with = |name: &syn::Ident| [prefix, &[name.to_string()]].concat();
        let (name, path, line) = match tree {
            syn::UseTree::Path(path) => return self.import(&path.tree, &with(&path.ident), is_public),
            syn::UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.import(tree, prefix, is_public));
            }
            // `use a::b::{self}` imports `b`.
            syn::UseTree::Name(name) if name.ident == "self" => {
                (prefix.last().cloned(), prefix.to_vec(), name.ident.span().start().line)
            }
            syn::UseTree::Name(name) => {
                (Some(name.ident.to_string()), with(&name.ident), name.ident.span().start().line)
            }
            syn::UseTree::Rename(rename) => {
                let path = if rename.ident == "self" { prefix.to_vec() } else { with(&rename.ident) };
                (Some(rename.rename.to_string()), path, rename.ident.span().start().line)
            }
            syn::UseTree::Glob(glob) => (None, prefix.to_vec(), glob.star_token.spans[0].start().line),
        };
        self.scope().imports.push(Import { name, path, line, is_public });
    }

    fn module(&mut self, item: &syn::ItemMod) {
        let name = item.ident.to_string();
        let outer = self.current;
        if item.content.is_some() {
            let path = [self.scope().path.as_slice(), &[name]].concat();
            self.scopes.push(Scope { path, ..Scope::default() });
            self.current = self.scopes.len() - 1;
            visit::visit_item_mod(self, item);
            self.current = outer;
        } else {
            self.scope().children.push(Child::new(item));
        }
    }

    /// Finds paths between the tokens of a macro call.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path = Words::new();
        let (mut colons, mut line) = (0, 0);
        for token in tokens {
            match token {
                TokenTree::Ident(word) => {
                    if colons != 2 {
                        self.used(std::mem::take(&mut path), line);
                        line = word.span().start().line;
                    }
                    colons = 0;
                    path.push(word.to_string());
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' && !path.is_empty() => colons += 1,
                TokenTree::Group(group) => {
                    self.used(std::mem::take(&mut path), line);
                    self.tokens(group.stream());
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {
                    self.used(std::mem::take(&mut path), line);
                    colons = 0;
                }
            }
        }
        self.used(path, line);
    }
}

/// The string of `#[name = "string"]`.
fn string_of(attribute: &syn::Attribute) -> Option<String> {
    match &attribute.meta.require_name_value().ok()?.value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
        _ => None,
    }
}

fn attributes_of(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Union(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if is_test(attributes_of(item)) {
            return;
        }
        match item {
            syn::Item::Mod(item) => return self.module(item),
            syn::Item::Use(item) => {
                let is_public = !matches!(item.vis, syn::Visibility::Inherited);
                if item.leading_colon.is_none() {
                    self.import(&item.tree, &[], is_public);
                }
                return;
            }
            syn::Item::Const(item) => self.item(&item.ident),
            syn::Item::Enum(item) => self.item(&item.ident),
            syn::Item::Fn(item) => self.item(&item.sig.ident),
            syn::Item::Macro(item) => item.ident.iter().for_each(|name| self.item(name)),
            syn::Item::Static(item) => self.item(&item.ident),
            syn::Item::Struct(item) => self.item(&item.ident),
            syn::Item::Trait(item) => self.item(&item.ident),
            syn::Item::Type(item) => self.item(&item.ident),
            syn::Item::Union(item) => self.item(&item.ident),
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if let (None, Some(first)) = (path.leading_colon, path.segments.first()) {
            let line = first.ident.span().start().line;
            self.used(path.segments.iter().map(|segment| segment.ident.to_string()).collect(), line);
        }
        visit::visit_path(self, path);
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        if let syn::Expr::Path(path) = &*call.func
            && let Some(name) = path.path.get_ident()
        {
            let line = name.span().start().line;
            self.scope().uses.insert(Use { path: vec![name.to_string()], line });
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    /// Only serde names functions in attributes, as strings.
    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        let syn::Meta::List(list) = &attribute.meta else { return };
        if !list.path.is_ident("serde") {
            return;
        }
        for token in list.tokens.clone() {
            let TokenTree::Literal(literal) = token else { continue };
            let line = literal.span().start().line;
            let path: Option<syn::Path> =
                syn::parse_str::<syn::LitStr>(&literal.to_string()).ok().and_then(|text| text.parse().ok());
            if let Some(path) = path.filter(|path| path.segments.len() > 1) {
                self.used(path.segments.iter().map(|segment| segment.ident.to_string()).collect(), line);
            }
        }
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        visit::visit_macro(self, call);
        self.tokens(call.tokens.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scopes(text: &str) -> Vec<Scope> {
        read(&syn::parse_file(text).unwrap())
    }

    fn uses(text: &str) -> Vec<String> {
        scopes(text)[0].uses.iter().map(|used| used.path.join("::")).collect()
    }

    #[test]
    fn imports_are_flattened() {
        let scope = &scopes("use crate::a::{self, B, c::D as E};\npub(crate) use super::*;\nuse ::std::fmt;")[0];
        let imports: Vec<_> = scope
            .imports
            .iter()
            .map(|i| format!("{:?} {} {} {}", i.name.as_deref().unwrap_or("*"), i.path.join("::"), i.line, i.is_public))
            .collect();
        assert_eq!(
            imports,
            [
                "\"a\" crate::a 1 false",
                "\"B\" crate::a::B 1 false",
                "\"E\" crate::a::c::D 1 false",
                "\"*\" super 2 true"
            ]
        );
    }

    #[test]
    fn uses_are_found_in_code() {
        assert_eq!(
            uses("fn a(b: c::D) -> E { f(g); h::i!(j::k(), \"{}\", L); m }"),
            ["E", "L", "c::D", "f", "h::i", "j::k"]
        );
        assert_eq!(uses("#[serde(with = \"crate::hex\")]\nstruct A;"), ["crate::hex"]);
        assert_eq!(uses("fn a() { std::mem::take(b); self.c; Self::d(); }"), [""; 0]);
    }

    #[test]
    fn test_items_are_left_out() {
        let scopes = scopes("#[cfg(test)]\nuse a::b;\n#[cfg(test)]\nmod tests;\n#[test]\nfn c() { d::e() }\nmod f;");
        assert_eq!(scopes.len(), 1);
        assert_eq!(scopes[0].imports, []);
        assert_eq!(scopes[0].uses, BTreeSet::new());
        assert_eq!(scopes[0].children, [Child { name: "f".into(), file: None }]);
    }

    #[test]
    fn inline_modules_have_scopes() {
        let scopes = scopes("mod a { mod b { fn c() { super::d() } } mod e; }");
        let paths: Vec<_> = scopes.iter().map(|scope| scope.path.join("::")).collect();
        assert_eq!(paths, ["", "a", "a::b"]);
        assert_eq!(scopes[1].children.len(), 1);
        assert_eq!(scopes[2].uses.len(), 1);
    }
}
