"""The sentences of the walkthrough, in English and Chinese: per stage a title and what it shows."""

from typing import Literal

Language = Literal["en", "zh"]

STAGE_TEXTS: dict[Language, dict[str, tuple[str, str]]] = {
    "en": {
        "0": (
            "The model",
            "A small Llama: layers of attention, one on top of the other. Its weights never change.",
        ),
        "1": (
            "Chat template",
            "The model knows no roles and no JSON. The messages become one text with marks; the opened assistant turn "
            "at its end makes the model answer instead of going on as the user.",
        ),
        "2": ("Tokens", "Text becomes places in a vocabulary. This is the unit in which every API bills."),
        "3": (
            "Forward pass",
            "One pass scores every vocabulary entry at every position. Only the last position is needed to go on.",
        ),
        "4": (
            "Temperature",
            "Scores are divided by T before the draw: below 1 the favourite wins, above 1 outsiders get a chance. "
            "The order never changes. Effective candidates = exp(entropy).",
        ),
        "5": (
            "Greedy decoding, with and without a K/V cache",
            "Keys and values of a token depend on it and on what came before, never on what follows. So they can be "
            "kept, and each step computes one new token instead of the whole text.",
        ),
        "5b": (
            "What the cache saves",
            "End tokens ignored, N tokens forced. Without a cache the work grows with the square of N.",
        ),
        "6": (
            "Sampling",
            "Every step divides by the temperature, keeps the top k, of these the top p, and draws. One seed, one "
            "answer: the loop written by hand and the library draw the same tokens.",
        ),
        "6b": (
            "Prefix reuse: prompt caching at home",
            "A long beginning is prefilled once, then every question computes only its own end. In one piece the "
            "rounding differs a little; in chunks cut at fixed positions nothing differs at all.",
        ),
        "7": (
            "The response",
            "What an API answers: finish_reason tells whether the last token was an end token, usage counts tokens.",
        ),
    },
    "zh": {
        "0": ("模型", "一个小号的 Llama：一层层注意力叠起来，权重只读，从不改动。"),
        "1": (
            "对话模板",
            "模型不懂角色，也不懂 JSON。消息被拼成一段带标记的文本；"
            "末尾打开的 assistant 一轮让模型开始回答，而不是替用户接着说。",
        ),
        "2": ("分词", "文本变成词表里的编号。API 计费用的就是这个单位。"),
        "3": ("前向计算", "一次前向，每个位置都给词表里的每一项打分；要往下生成，只需要最后一个位置。"),
        "4": (
            "温度",
            "抽签之前先把分数除以 T：小于 1，领先者更稳；大于 1，冷门也有机会。名次不变。有效候选数 = exp(熵)。",
        ),
        "5": (
            "贪心解码：有无 K/V 缓存",
            "一个 token 的 K、V 只取决于它自己和前文，与后文无关。"
            "所以可以存下来，每一步只算一个新 token，不必重算全文。",
        ),
        "5b": ("缓存省了多少", "忽略结束符，强制生成 N 个 token。没有缓存时，工作量随 N 的平方增长。"),
        "6": ("采样", "每一步依次经过温度、top-k、top-p 再抽签。种子相同，手写循环与库抽出的 token 完全相同。"),
        "6b": (
            "前缀复用：本地版的 prompt caching",
            "长长的开头只预填充一次，每个问题只算自己的结尾。整段计算时舍入略有差别；按固定位置分块计算，则分毫不差。",
        ),
        "7": ("响应", "API 的回答就是这样拼成的：finish_reason 看最后一个 token 是不是结束符，usage 就是数 token。"),
    },
}

LABELS: dict[Language, dict[str, str]] = {
    "en": {},
    "zh": {
        "model": "模型",
        "parameters": "参数",
        "layers": "层数",
        "heads": "注意力头",
        "vocabulary": "词表",
        "context": "上下文",
        "{queries} for queries, {kv} for keys and values": "查询 {queries}，键值 {kv}",
        "{count} tokens, the first {shown}:": "{count} 个 token，前 {shown} 个：",
        "id": "编号",
        "token": "token",
        "logits": "logits",
        "(batch, tokens, vocabulary)": "（批，token，词表）",
        "next token": "下一个 token",
        "probability": "概率",
        "temperature": "温度",
        "top probability": "首选概率",
        "effective candidates": "有效候选数",
        "loop": "循环",
        "no cache": "无缓存",
        "K/V cache": "K/V 缓存",
        "time": "用时",
        "equals model.generate": "与 model.generate 一致",
        "answer": "回答",
        "yes": "是",
        "no": "否",
        "cache": "缓存",
        "{length} tokens, keys of a layer {shape}, {size}": "{length} 个 token，每层 key 形状 {shape}，共 {size}",
        "a token": "每个 token",
        "layers x (K+V) x kv heads x head size x bytes": "层 ×（K+V）× kv 头 × 头维 × 字节",
        "faster": "倍数",
        "seed": "种子",
        "prefix": "前缀",
        "{count} tokens": "{count} 个 token",
        "question": "问题",
        "full": "全量",
        "computed": "实算",
        "max|Δlogits|": "max|Δlogits|",
        "same choice": "选择相同",
        "in one piece (prefill {time})": "整段（预填充 {time}）",
        "in chunks of {chunk}, {cached} tokens cached (prefill {time})": (
            "每块 {chunk}，缓存 {cached} 个 token（预填充 {time}）"
        ),
        "Q4_1": (
            "注：打包的权重是 Q4_1（4 比特），分布比全精度平得多：这里首选约 0.15，"
            "Hugging Face 上的全精度权重约 0.83。结构、一致性与缓存的数字不受影响。"
        ),
    },
}
Q4_1_NOTE = (
    "Note: the packaged weights are Q4_1 (4 bits), which flattens the choice: the favourite has about .15 here and "
    "about .83 with the full-precision weights of the hub. Shapes, equalities and cache figures are the same."
)
LABELS["en"]["Q4_1"] = Q4_1_NOTE


def label(language: Language, text: str, **values: object) -> str:
    """A label in this language; English labels are their own keys."""
    return LABELS[language].get(text, text).format(**values)
