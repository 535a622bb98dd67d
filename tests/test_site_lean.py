"""Styles and scripts of a built site are small, and lack nothing that a page uses."""

from overlap.site.lean import make_lean, without_unused


def test_rules_that_no_page_or_script_can_use_go():
    styles = '@charset "UTF-8";.md-a,.md-b{x:1}@media print{.md-b .md-a{x:2}.md-a:not(.md-b){x:3}}p{x:4}'
    assert without_unused(styles, {"md-a"}) == (
        '@charset "UTF-8";.md-a{x:1}@media print{.md-a:not(.md-b){x:3}}p{x:4}'
    )


def test_what_a_script_puts_together_stays_and_settings_are_those_of_the_pages():
    styles = ".md-a--next{x:1}[dir=rtl] .md-a{x:2}[data-md-color-scheme=slate]{x:3}[type=checkbox]{x:4}"
    words = {"md-a", "rtl", "slate", "data-md-color-scheme=slate"}
    assert without_unused(styles, words) == (
        ".md-a--next{x:1}[data-md-color-scheme=slate]{x:3}[type=checkbox]{x:4}"
    )


def test_a_site_is_written_without_comments_and_unused_rules(tmp_path):
    own, site = tmp_path / "own", tmp_path / "site"
    own.mkdir()
    (site / "assets/stylesheets").mkdir(parents=True)
    (own / "a.css").write_text('/* A\n   B */\n.c {\n  content: "//";  /* D */\n}\n')
    (own / "a.js").write_text('/* A */\nconst a = "http://b/*"  // C\n  // D\nf()\n')
    (site / "index.html").write_text('<body dir="ltr"><p class="md-a">text')
    (site / "assets/stylesheets/main.1.css").write_text("[dir=ltr] .md-a{x:1}[dir=rtl] .md-a{x:2}.md-b{x:3}")
    make_lean(site, own)
    assert (site / "assets/a.css").read_text().strip() == '.c {\ncontent: "//";\n}'
    assert (site / "assets/a.js").read_text().split() == ["const", "a", "=", '"http://b/*"', "f()"]
    assert (site / "assets/stylesheets/main.1.css").read_text() == "[dir=ltr] .md-a{x:1}"
