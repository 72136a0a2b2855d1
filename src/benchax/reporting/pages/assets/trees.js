"use strict";
// Areas inside one another: what a whole is made of. A click or Enter goes into a part, the path above leads back.

function listBranches({ roots, quantity = "seconds" }) {
  const items = [];
  const walk = (branch, path) => {
    const here = [...path, branch.name];
    const lines = [here.join(" / "), `${writeValue(branch.value, quantity, 4)}`, branch.detail].filter(Boolean);
    const item = { id: `n${items.length}`, lines, row: { path: here.join(" / "), value: branch.value, what: branch.detail || "" } };
    items.push(item);
    branch.item = item;
    (branch.parts || []).forEach((part) => walk(part, here));
  };
  roots.forEach((root) => walk(root, []));
  return items;
}

const AREAS = { light: ["#cfe3f5", "#d7ecd9", "#f6e3c5", "#e6daf0", "#f5d5d0", "#dfe4ea"], dark: ["#1f4565", "#24503a", "#5e481c", "#47345e", "#623029", "#38404a"] };

function treeOption({ roots: trees, quantity = "seconds" }, look) {
  const colors = AREAS[look === DARK ? "dark" : "light"];
  const convert = (branch, color) => ({
    id: branch.item.id, name: branch.name, value: branch.value, lines: branch.item.lines,
    itemStyle: { color, borderColor: look.back, borderWidth: 1, gapWidth: 1 },
    children: (branch.parts || []).map((part, i) => convert(part, color || colors[i % colors.length])),
  });
  const roots = trees.map((root, i) => convert(root, trees.length > 1 ? colors[i % colors.length] : undefined));
  const label = { color: look.text, fontSize: 12, lineHeight: 16, overflow: "truncate", formatter: ({ name, value }) => `${name}\n${writeValue(value, quantity)}` };
  return {
    animation: false,
    series: [{
      type: "treemap", name: "all", data: roots, roam: false, nodeClick: "zoomToNode", leafDepth: 3, itemStyle: { color: look.back, borderColor: look.back }, left: 0, right: 0, top: 0, bottom: 32,
      visibleMin: 60, label, upperLabel: { show: true, height: 20, color: look.text, fontSize: 12, overflow: "truncate", formatter: ({ name, value }) => `${name}  ${writeValue(value, quantity)}` },
      breadcrumb: { bottom: 0, height: 24, itemStyle: { color: look.grid, borderColor: look.back, textStyle: { color: look.text } }, emphasis: { itemStyle: { color: look.faint } } },
      emphasis: { label: { color: look.text }, upperLabel: { show: true, color: look.text }, itemStyle: { borderColor: look.text } },
    }],
  };
}
