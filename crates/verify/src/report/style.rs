//! How pages look: by day, by night and on paper, on a wide screen and on a narrow one.

/// The style sheet of every page.
pub(super) const STYLE: &str = "\
:root{color-scheme:light dark;--fg:#222;--bg:#fff;--rule:#ccc;--bad:#a40000;--soft:#f6f6f6;\
--c0:#3465a4;--c1:#c4690a;--c2:#4e9a06;--c3:#a40000;--c4:#75507b;--c5:#8f5902;--c6:#06989a;\
--c7:#555753}\
@media (prefers-color-scheme:dark){:root{--fg:#ddd;--bg:#1c1c1c;--rule:#555;--bad:#ff8a80;\
--soft:#2a2a2a;--c0:#8ab4f8;--c1:#fcaf3e;--c2:#8ae234;--c3:#ef5350;--c4:#c9a4d6;--c5:#e9b96e;\
--c6:#4dd0e1;--c7:#babdb6}}\
body{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em;\
color:var(--fg);background:var(--bg)}\
table{border-collapse:collapse;margin:1em 0}main{overflow-x:auto}\
caption{text-align:left;font-weight:bold}\
td,th{padding:.2em .8em;text-align:left;vertical-align:top;border-bottom:1px solid var(--rule)}\
td.n{text-align:right;white-space:nowrap}code{font-size:13px;overflow-wrap:anywhere}\
small{display:block;font-size:11px}h2{margin-top:2em}.bad{color:var(--bad)}a{color:var(--c0)}\
figure{margin:2em 0}figure svg{width:100%;height:auto;background:var(--soft)}\
figure svg text{fill:var(--fg);font:12px sans-serif}.from{font-size:12px;padding-left:1.2em}\
.grid{stroke:var(--rule)}.whisker{stroke:var(--fg);stroke-width:1.5}\
.bar{fill:var(--c)}.line{fill:none;stroke:var(--c);stroke-width:2}\
.loaded .bar{fill-opacity:.4;stroke:var(--c);stroke-dasharray:3 2}\
.loaded .line{stroke-dasharray:6 4}\
.c0{--c:var(--c0)}.c1{--c:var(--c1)}.c2{--c:var(--c2)}.c3{--c:var(--c3)}\
.c4{--c:var(--c4)}.c5{--c:var(--c5)}.c6{--c:var(--c6)}.c7{--c:var(--c7)}\
@media print{body{max-width:none;margin:0;font-size:11px}nav{display:none}\
figure,tr{break-inside:avoid}h2,h3,h4{break-after:avoid}}";
