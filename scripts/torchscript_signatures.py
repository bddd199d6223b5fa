"""Writes models/readers/src/torch/script/signatures.txt."""
import re, sys
import torch, torchvision
root="/work/wt/script/models/readers/src/torch/"
rules = re.findall(r'^    \("([\w.]+)",', open(root+"rules/table.rs").read(), re.M)
cx = re.findall(r'"([\w.]+)"(?: \||\s*=>)', open(root+"rules/complex.rs").read())
extra = "nonzero unique _unique2 masked_select argwhere unique_consecutive rand randn rand_like randn_like randint bernoulli multinomial randperm normal uniform _convolution _convolution_mode _transformer_encoder_layer_fwd _native_multi_head_attention torchvision.nms".split()
names = set(rules)|set(cx)|set(extra)
short={'Tensor':'T','number':'N','int':'I','float':'F','bool':'B','str':'S','Device':'D','List[Tensor]':'T*','List[Optional[Tensor]]':'O*','List[int]':'I*','Generator':'G','List[float]':'F*'}
def kind(t,n):
    m=re.fullmatch(r'Optional\[(.*)\]',t); opt=''
    if m: t,opt=m[1],'?'
    if t=='Dict[Tensor, t]' or t.startswith('Dict'): return None
    k=short[t]
    if n is not None and k in('I*','F*'): k=k[0]+'+'
    return k+opt
lines=set()
for s in torch._C._jit_get_all_schemas():
    ns,_,base=s.name.partition("::")
    if ns=="aten": key=base
    elif ns=="torchvision": key="torchvision."+base
    else: continue
    if key.startswith("__") and key.endswith("__"):
        bare=key.strip("_")
        if bare[0]=='i' and bare[1:] in names and bare not in names: bare=bare[1:]
    else: bare = key[:-1] if key.endswith("_") else key
    if bare not in names: continue
    if any(a.is_out for a in s.arguments) or any("Dimname" in str(a.type) or "Dict" in str(a.type) for a in s.arguments): continue
    if not any("Tensor" in str(a.type) for a in s.arguments) and not any(a.name in("dtype","device","layout") for a in s.arguments): continue
    args=[]; star=False
    for a in s.arguments:
        if a.kwarg_only and not star: args.append("*"); star=True
        args.append(f"{a.name}:{kind(str(a.type),a.N)}"+("=" if a.has_default_value() else ""))
    rs=[str(r.type) for r in s.returns]
    if rs==["List[Tensor]"]: args.append("->*")
    elif len(rs)>1: args.append(f"->{len(rs)}")
    lines.add(f"{bare} {' '.join(args)}\n")
def cost(l): return (l.split()[0], 0 if ' self:T other:T' in l or 'self:T exponent:T' in l else 1, len(l), l)
open(root+"script/signatures.txt","w").writelines(sorted(lines,key=cost))
print(len(lines))
